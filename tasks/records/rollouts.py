"""Rollouts as a table: one row per turn, row groups of whole graphs.

``COLUMNS`` says of each column what it holds, where its value comes from and what it becomes again:
schema, writer and reader all follow it. The columns in ``OPTIONAL`` are there only where a graph
has something for them, and a file without them reads as one of first runs without metadata.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from astra_core.files import draft_of, record_digest
from astra_core.rollout import Context, Failure, Graph, Node, Probe, Prompt, Replies
from tasks.records.prompt_table import read_metadata, spelled_metadata

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROLLOUTS_FILE = "rollouts.parquet"
# Equal for the rows of one graph.
_GRAPH = ("prompt_id", "iteration", "run_id")

# Whole numbers have 32 bits. Doubles: a value survives the file bit for bit, and so does the first
# update.
TEXT, WHOLE, NUMBER, FLAG = "string", "int32", "float64", "bool_"


def _as_it_is(value: Any) -> Any:
    return value


def _rows_of(values: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(value) for value in values)


def _nan_as_null(value: float) -> float | None:
    return None if math.isnan(value) else value


def _spelled_labels(labels: Sequence[Mapping[str, float]]) -> list[str]:
    return [json.dumps(dict(own), sort_keys=True) for own in labels]


def _read_labels(texts: Sequence[str]) -> tuple[dict[str, float], ...]:
    return tuple(map(json.loads, texts))


def _spelled_path(path: Sequence[int]) -> str:
    return ".".join(map(str, path))


def _read_path(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table.

    Attributes:
        name: In the file.
        kind: Of one value, by its name in Arrow.
        depth: How many lists lie around a value.
        to: The part of a turn and its field that are read from the column, if any.
        of: What is written, of a graph and one of its nodes; None is what the node calls so.
        write: What that becomes in the file.
        read: What it becomes again.
    """

    name: str
    kind: str
    depth: int = 0
    to: str = ""
    of: Callable[[Graph, Node], Any] | None = None
    write: Callable[[Any], Any] = _as_it_is
    read: Callable[[Any], Any] = _as_it_is

    def value(self, graph: Graph, node: Node) -> Any:
        """What the row of a node holds."""
        if self.of is not None:
            return self.of(graph, node)
        return self.write(getattr(node, self.name))


def _row_id(graph: Graph, node: Node) -> str:
    place = [graph.prompt.prompt_id, graph.iteration, _spelled_path(node.path)]
    return record_digest([*place, graph.run_id] if graph.run_id else place)[:16]


COLUMNS = (
    Column("row_id", TEXT, of=_row_id),
    Column("prompt_id", TEXT, of=lambda graph, _: graph.prompt.prompt_id),
    Column("prompt_text", TEXT, of=lambda graph, _: graph.prompt.text),
    Column("iteration", WHOLE, of=lambda graph, _: graph.iteration),
    Column("path", TEXT, to="node path", write=_spelled_path, read=_read_path),
    Column("parent", TEXT, of=lambda _, node: _spelled_path(node.path[:-1])),
    Column("depth", WHOLE, of=lambda _, node: len(node.path)),
    Column("context_ids", WHOLE, depth=1, to="context token_ids", read=tuple),
    Column("truncated_tokens", WHOLE, to="context truncated_tokens"),
    Column("probe_text", TEXT, to="probe text"),
    Column("probe_ids", WHOLE, depth=1, to="probe token_ids", read=tuple),
    Column("probe_logprobs", NUMBER, depth=1, to="probe logprobs", read=tuple),
    Column("probe_mask", FLAG, depth=1, to="probe mask", read=tuple),
    Column("reference_logprobs", NUMBER, depth=1, to="probe reference_logprobs", read=tuple),
    Column("target_logprobs", NUMBER, depth=1, to="replies probe_logprobs", read=tuple),
    Column("response_texts", TEXT, depth=1, to="replies texts", read=tuple),
    Column("response_ids", WHOLE, depth=2, to="replies token_ids", read=_rows_of),
    Column("response_scores", NUMBER, depth=1, to="replies scores", read=tuple),
    Column("score", NUMBER, write=_nan_as_null),
    Column("probe_score", NUMBER, to="probe score"),
    Column("novelty", NUMBER, to="probe novelty"),
    Column("reward", NUMBER, to="node reward"),
    Column("failure", TEXT, to="failure reason"),
)
OPTIONAL = (
    Column("run_id", WHOLE, of=lambda graph, _: graph.run_id),
    Column("prompt_metadata", TEXT, of=lambda graph, _: spelled_metadata(graph.prompt.metadata)),
    Column("response_unjudged", TEXT, depth=1, to="replies unjudged", read=tuple),
    Column(
        "response_labels",
        TEXT,
        depth=1,
        to="replies labels",
        write=_spelled_labels,
        read=_read_labels,
    ),
    Column("response_rationales", TEXT, depth=1, to="replies rationales", read=tuple),
    Column("failure_kind", TEXT, to="failure kind"),
)
# Column and field, by the part of a turn that the field belongs to.
PARTS = {
    part: tuple(
        (column, column.to.split()[1])
        for column in COLUMNS + OPTIONAL
        if column.to.split()[:1] == [part]
    )
    for part in ("node", "context", "probe", "replies", "failure")
}


def columns_for(graphs: Sequence[Graph]) -> tuple[Column, ...]:
    """The columns of a file of these graphs."""
    has = {
        "run_id": any(graph.run_id for graph in graphs),
        "prompt_metadata": any(graph.prompt.metadata for graph in graphs),
    }
    nodes = [node for graph in graphs for node in graph.nodes()]
    for name in ("unjudged", "labels", "rationales"):
        has[f"response_{name}"] = any(getattr(node.replies, name) for node in nodes)
    has["failure_kind"] = any(node.failure_kind for node in nodes)
    return COLUMNS + tuple(column for column in OPTIONAL if has[column.name])


def rollout_schema(columns: Sequence[Column] = COLUMNS) -> "pa.Schema":
    """The columns as Arrow has them."""
    import pyarrow as pa

    kinds = {}
    for column in columns:
        kind = getattr(pa, column.kind)()
        for _ in range(column.depth):
            kind = pa.list_(kind)
        kinds[column.name] = kind
    return pa.schema(kinds)


def write_rollouts(graphs: Iterable[Graph], path: Path, *, graphs_per_group: int = 256) -> int:
    """Writes one row per turn and returns how many; no more than a row group of trees is held.

    Which columns there are depends on all trees. Where a later one needs another, a new part is
    begun, and in the end the parts become one file: the same as if all had been there at once.
    """
    import pyarrow.parquet as pq

    with draft_of(path) as draft, TemporaryDirectory(dir=path.parent) as scratch:
        groups = _groups(graphs, graphs_per_group)
        parts: list[Path] = []
        columns: tuple[Column, ...] = COLUMNS
        count = 0
        group = next(groups, [])
        while group or not parts:
            columns = _widened(columns, group)
            parts.append(Path(scratch) / str(len(parts)))
            with pq.ParquetWriter(parts[-1], rollout_schema(columns)) as writer:
                while group and _widened(columns, group) == columns:
                    count += _append(writer, group, columns)
                    group = next(groups, [])
        if len(parts) == 1:
            parts[0].replace(draft)
            return count
        with pq.ParquetWriter(draft, rollout_schema(columns)) as writer:
            every = chain.from_iterable(map(stream_rollouts, parts))
            for group in _groups(every, graphs_per_group):
                _append(writer, group, columns)
    return count


def _groups(graphs: Iterable[Graph], size: int) -> Iterator[list[Graph]]:
    remaining = iter(graphs)
    while group := list(islice(remaining, size)):
        yield group


def _widened(columns: tuple[Column, ...], graphs: Sequence[Graph]) -> tuple[Column, ...]:
    """The columns with those that these graphs need too, in their order."""
    wanted = {*columns, *columns_for(graphs)}
    return tuple(column for column in COLUMNS + OPTIONAL if column in wanted)


def _append(writer: "pq.ParquetWriter", graphs: Sequence[Graph], columns: Sequence[Column]) -> int:
    import pyarrow as pa

    rows = list(_rows(graphs, columns))
    # One row group whatever its size, so that a reader of one has whole graphs.
    table = pa.Table.from_pylist(rows, schema=rollout_schema(columns))
    writer.write_table(table, row_group_size=max(len(rows), 1))
    return len(rows)


def read_rollouts(path: Path) -> list[Graph]:
    """The graphs in a rollouts file, in the order they were written.

    Raises:
        DataError: The file is missing or is no table of rollouts.
    """
    return list(stream_rollouts(path))


def stream_rollouts(path: Path) -> Iterator[Graph]:
    """The graphs in a rollouts file one by one; no more than a row group of rows is held.

    Raises:
        DataError: The file is missing or is no table of rollouts.
    """
    for table in rollout_tables(path):
        keys = [name for name in _GRAPH if name in table.column_names]
        for _, own in groupby(table.to_pylist(), key=itemgetter(*keys)):
            try:
                graph = _graph(list(own))
            except (DataError, ValueError, TypeError, RecursionError) as error:
                msg = f"{path} must hold whole trees, got {type(error).__name__}; run that stage"
                raise DataError(msg) from error
            yield graph


def graph_keys(path: Path) -> Iterator[tuple[Any, ...]]:
    """What names each graph of a rollouts file, in order.

    Raises:
        DataError: The file is missing or is no table of rollouts.
    """
    for table in rollout_tables(path):
        keys = [name for name in _GRAPH if name in table.column_names]
        for key, _ in groupby(zip(*(table[name].to_pylist() for name in keys), strict=True)):
            yield key


def rollout_tables(path: Path) -> Iterator["pa.Table"]:
    """The row groups of a rollouts file; each holds whole graphs.

    Raises:
        DataError: The file is missing or is no table of rollouts.
    """
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        with pq.ParquetFile(path) as file:
            names = set(file.schema_arrow.names)
            extra = tuple(column for column in OPTIONAL if column.name in names)
            schema = rollout_schema(COLUMNS + extra)
            if not file.num_row_groups:
                yield schema.empty_table()
            for number in range(file.num_row_groups):
                yield file.read_row_group(number).select(schema.names).cast(schema)
    except (KeyError, OSError, ArrowException) as error:
        msg = f"{path} must be a table of rollouts, got {type(error).__name__}; run that stage"
        raise DataError(msg) from error


def _rows(graphs: Sequence[Graph], columns: Sequence[Column]) -> Iterator[dict[str, Any]]:
    for graph in graphs:
        for node in graph.nodes():
            yield {column.name: column.value(graph, node) for column in columns}


def _graph(rows: list[dict[str, Any]]) -> Graph:
    children: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        children.setdefault(row["parent"], []).append(row)

    first = rows[0]
    metadata = read_metadata(first.get("prompt_metadata"))
    run_id = first.get("run_id") or 0
    prompt = Prompt(first["prompt_id"], first["prompt_text"], metadata, run_id)
    return Graph(prompt, first["iteration"], _grown("", children))


# No closure: one that calls itself would keep the rows until the collector of cycles comes.
def _grown(parent: str, children: dict[str, list[dict[str, Any]]]) -> tuple[Node, ...]:
    rows = children.get(parent, [])
    return tuple(_node(row, _grown(row["path"], children)) for row in rows)


def _node(row: dict[str, Any], children: tuple[Node, ...]) -> Node:
    outcome: Replies | Failure = (
        Failure(**_read(row, "failure")) if row["failure"] else Replies(**_read(row, "replies"))
    )
    return Node(
        **_read(row, "node"),
        context=Context(**_read(row, "context")),
        probe=Probe(**_read(row, "probe")),
        outcome=outcome,
        children=children,
    )


def _read(row: dict[str, Any], part: str) -> dict[str, Any]:
    """The fields of one part of a turn, as far as the file has them."""
    known = ((column, field) for column, field in PARTS[part] if column.name in row)
    return {field: column.read(row[column.name]) for column, field in known}
