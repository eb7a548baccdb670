"""The columns of a table of rollouts.

``COLUMNS`` says for each column what it holds, where its value comes from and what it is read into:
schema, writer and reader all follow it. The columns in ``OPTIONAL`` are there only if a turn has a
value for them; a file without them is read as one of first runs without metadata.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

from astra_core.files import record_digest
from astra_core.rollout import Graph, Node
from tasks.records.prompt_table import spelled_metadata

if TYPE_CHECKING:
    import pyarrow as pa

# Integers have 32 bits. Floats are doubles, so that a value survives the file bit for bit, and with
# it the first update.
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
        to: The part of a turn and its field that are read from the column, if any.
        of: Takes the value from a graph and one of its nodes; None is the node's own field.
    """

    name: str
    kind: str
    depth: int = 0
    to: str = ""
    of: Callable[[Graph, Node], Any] | None = None
    write: Callable[[Any], Any] = _as_it_is
    read: Callable[[Any], Any] = _as_it_is

    def value(self, graph: Graph, node: Node) -> Any:
        """The column's value in the row of a node."""
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
    Column("response_finish_reasons", TEXT, depth=1, to="replies finish_reasons", read=tuple),
    Column("failure_kind", TEXT, to="failure kind"),
)
# Columns and fields, by the part of a turn that the field belongs to.
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
    turns = [(graph, node) for graph in graphs for node in graph.nodes()]
    has = (any(column.value(*turn) for turn in turns) for column in OPTIONAL)
    return (*COLUMNS, *compress(OPTIONAL, has))


def rollout_schema(columns: Sequence[Column] = COLUMNS) -> "pa.Schema":
    """The columns as an Arrow schema."""
    import pyarrow as pa

    kinds = {}
    for column in columns:
        kind = getattr(pa, column.kind)()
        for _ in range(column.depth):
            kind = pa.list_(kind)
        kinds[column.name] = kind
    return pa.schema(kinds)
