"""Rollouts as a file: one row per turn, whole graphs in each row group."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, overload

from astra_core.errors import DataError
from astra_core.files import draft_of
from astra_core.rollout import Context, Failure, Graph, Node, Probe, Prompt, Replies
from tasks.records.prompt_table import read_metadata
from tasks.records.rollout_columns import (
    COLUMNS,
    OPTIONAL,
    PARTS,
    Column,
    columns_for,
    rollout_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROLLOUTS_FILE = "rollouts.parquet"
# Columns with equal values in all rows of one graph.
_GRAPH = ("prompt_id", "iteration", "run_id")


def write_rollouts(graphs: Iterable[Graph], path: Path, *, graphs_per_group: int = 256) -> int:
    """The number of rows written, one per turn; at most a row group of trees is in memory.

    The columns depend on all trees. If a later tree needs another column, a new part begins, and in
    the end the parts become one file, the same as if all columns had been known at once.
    """
    import pyarrow.parquet as pq

    with draft_of(path) as draft, TemporaryDirectory(dir=path.parent) as scratch:
        groups = _groups(graphs, graphs_per_group)
        parts: list[Path] = []
        columns: tuple[Column, ...] = COLUMNS
        count = 0
        group = next(groups, [])
        while group or not parts:
            columns = _widen(columns, group)
            parts.append(Path(scratch) / str(len(parts)))
            with pq.ParquetWriter(parts[-1], rollout_schema(columns)) as writer:
                while group and _widen(columns, group) == columns:
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


def _widen(columns: tuple[Column, ...], graphs: Sequence[Graph]) -> tuple[Column, ...]:
    """The columns, with those added that these graphs need, in their order."""
    wanted = {*columns, *columns_for(graphs)}
    return tuple(column for column in COLUMNS + OPTIONAL if column in wanted)


def _append(writer: "pq.ParquetWriter", graphs: Sequence[Graph], columns: Sequence[Column]) -> int:
    import pyarrow as pa

    rows = list(_rows(graphs, columns))
    # One row group whatever its size, so that each row group has whole graphs.
    table = pa.Table.from_pylist(rows, schema=rollout_schema(columns))
    writer.write_table(table, row_group_size=max(len(rows), 1))
    return len(rows)


def read_rollouts(path: Path) -> list[Graph]:
    """The graphs in a rollouts file, in the order they were written.

    Raises DataError if the file is missing or is no table of rollouts.
    """
    return list(stream_rollouts(path))


def stream_rollouts(path: Path) -> Iterator[Graph]:
    """The graphs in a rollouts file one by one; at most a row group is in memory.

    Raises DataError if the file is missing or is no table of rollouts.
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


def rollout_tables(path: Path) -> Iterator["pa.Table"]:
    """The row groups of a rollouts file; each holds whole graphs.

    Raises DataError if the file is missing or is no table of rollouts.
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
    return Graph(prompt, first["iteration"], _nodes_below("", children))


# Not a closure: one that calls itself would keep the rows until cycles are collected.
def _nodes_below(parent: str, children: dict[str, list[dict[str, Any]]]) -> tuple[Node, ...]:
    rows = children.get(parent, [])
    return tuple(_node(row, _nodes_below(row["path"], children)) for row in rows)


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


class StoredRollouts(Sequence[Graph]):
    """A rollouts file as a sequence that keeps no tree in memory; each use reads the file again.

    Raises DataError if the file is missing, or does not hold whole trees.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The whole file is read now, so that a broken tree is reported before any work is done.
        self._length = sum(1 for _ in stream_rollouts(path))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Graph]:
        return stream_rollouts(self._path)

    @overload
    def __getitem__(self, place: int) -> Graph: ...
    @overload
    def __getitem__(self, place: slice) -> list[Graph]: ...
    def __getitem__(self, place: int | slice) -> Graph | list[Graph]:
        chosen = range(self._length)[place]
        if isinstance(chosen, int):
            return next(islice(self, chosen, None))
        wanted = set(chosen)
        found = {at: graph for at, graph in enumerate(self) if at in wanted}
        return [found[at] for at in chosen]
