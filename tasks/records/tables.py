"""The files stages hand to each other: prompts and rollouts as Parquet, a manifest of models."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from astra_core.errors import ConfigurationError, DataError
from astra_core.files import draft_of, read_json, record_digest
from astra_core.rollout import Context, Failure, Graph, Node, Probe, Prompt, Replies

if TYPE_CHECKING:
    import pyarrow as pa

ROLES = ("attacker", "target", "reference")
ROLLOUTS_FILE = "rollouts.parquet"


def read_prompts(path: Path, *, limit: int | None = None) -> list[Prompt]:
    """The prompts of one split, in file order, the first ``limit`` of them.

    Raises:
        DataError: The file is missing, holds no row or is no table of prompts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    schema = pa.schema({"prompt_id": pa.string(), "text": pa.string()})
    try:
        table = pq.read_table(path, columns=schema.names).cast(schema)
    except (OSError, ArrowException, KeyError, ValueError) as error:
        msg = (
            f"{path} must be a table of prompts, got {type(error).__name__}; run the stages before"
        )
        raise DataError(msg) from error
    if any(table[name].null_count for name in schema.names):
        msg = f"{path} must hold a text and an id in each row, got null; run the stages before"
        raise DataError(msg)
    rows = table.slice(0, limit).to_pylist() if limit is not None else table.to_pylist()
    if not rows:
        msg = f"{path} must hold at least one prompt, got 0; see reports/validation.md"
        raise DataError(msg)
    return [Prompt(row["prompt_id"], row["text"]) for row in rows]


def read_model_paths(base: Path) -> dict[str, Path]:
    """The folder of each role that the models stage named in its manifest.

    Raises:
        ConfigurationError: The manifest is missing or a folder is gone.
    """
    manifest = read_manifest(base)
    paths = {}
    for role in ROLES:
        stored = Path(manifest[role]["path"])
        paths[role] = stored if manifest[role]["is_outside"] else base / stored
        if not (paths[role] / "config.json").is_file():
            msg = (
                f"the {role}'s folder must hold a model, got '{paths[role]}'; run the models stage"
            )
            raise ConfigurationError(msg)
    return paths


def read_manifest(base: Path, *, keys: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """What the models stage recorded of each role: ``path``, ``is_outside`` and more.

    Args:
        base: What that stage wrote.
        keys: What it must have recorded besides.

    Raises:
        ConfigurationError: The manifest is missing or is not what that stage writes.
    """
    path = base / "manifest.json"
    if not path.is_file():
        msg = f"{path} must exist, got no such file; run the models stage"
        raise ConfigurationError(msg)
    try:
        manifest: dict[str, dict[str, Any]] = read_json(path)
        for role in ROLES:
            entry = manifest[role]
            Path(entry["path"]), bool(entry["is_outside"]), [entry[key] for key in keys]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        msg = f"{path} must name the models, got {type(error).__name__}; run the models stage"
        raise ConfigurationError(msg) from error
    return manifest


def write_rollouts(graphs: Sequence[Graph], path: Path, *, graphs_per_group: int = 256) -> int:
    """Writes one row per turn and returns how many; whole row groups are streamed."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _rollout_schema()
    count = 0
    with draft_of(path) as draft, pq.ParquetWriter(draft, schema) as writer:
        for start in range(0, len(graphs), graphs_per_group):
            rows = list(_rows(graphs[start : start + graphs_per_group]))
            # One row group whatever its size: whoever reads one has whole graphs.
            table = pa.Table.from_pylist(rows, schema=schema)
            writer.write_table(table, row_group_size=max(len(rows), 1))
            count += len(rows)
    return count


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
        for _, own in groupby(table.to_pylist(), key=itemgetter("prompt_id", "iteration")):
            try:
                graph = _graph(list(own))
            except (ValueError, TypeError, RecursionError) as error:
                msg = f"{path} must hold whole trees, got {type(error).__name__}; run that stage"
                raise DataError(msg) from error
            yield graph


def rollout_tables(path: Path) -> Iterator["pa.Table"]:
    """The row groups of a rollouts file; each holds whole graphs.

    Raises:
        DataError: The file is missing or is no table of rollouts.
    """
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    schema = _rollout_schema()
    try:
        with pq.ParquetFile(path) as file:
            if not file.num_row_groups:
                yield schema.empty_table()
            for number in range(file.num_row_groups):
                yield file.read_row_group(number).select(schema.names).cast(schema)
    except (KeyError, OSError, ArrowException) as error:
        msg = f"{path} must be a table of rollouts, got {type(error).__name__}; run that stage"
        raise DataError(msg) from error


def write_prompt_table(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Writes a table of one row per prompt and role."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with draft_of(path) as draft:
        pq.write_table(pa.Table.from_pylist(list(rows)), draft)


def finite(record: dict[str, Any]) -> dict[str, Any]:
    """The record with NaN and infinities as null, for JSON."""
    found: dict[str, Any] = json.loads(json.dumps(record), parse_constant=lambda _: None)
    return found


def _rollout_schema() -> Any:
    import pyarrow as pa

    text, number, whole = pa.string(), pa.float64(), pa.int32()
    return pa.schema(
        {
            "row_id": text,
            "prompt_id": text,
            "prompt_text": text,
            "iteration": whole,
            "path": text,
            "parent": text,
            "depth": whole,
            "context_ids": pa.list_(whole),
            "truncated_tokens": whole,
            "probe_text": text,
            "probe_ids": pa.list_(whole),
            # Doubles: a value survives the file bit for bit, and so does the first update.
            "probe_logprobs": pa.list_(number),
            "probe_mask": pa.list_(pa.bool_()),
            "reference_logprobs": pa.list_(number),
            "target_logprobs": pa.list_(number),
            "response_texts": pa.list_(text),
            "response_ids": pa.list_(pa.list_(whole)),
            "response_scores": pa.list_(number),
            "score": number,
            "probe_score": number,
            "novelty": number,
            "reward": number,
            "failure": text,
        }
    )


def _rows(graphs: Sequence[Graph]) -> Iterable[dict[str, Any]]:
    for graph in graphs:
        for node in graph.nodes():
            path = ".".join(map(str, node.path))
            yield {
                "row_id": record_digest([graph.prompt.prompt_id, graph.iteration, path])[:16],
                "prompt_id": graph.prompt.prompt_id,
                "prompt_text": graph.prompt.text,
                "iteration": graph.iteration,
                "path": path,
                "parent": ".".join(map(str, node.path[:-1])),
                "depth": len(node.path),
                "context_ids": node.context_ids,
                "truncated_tokens": node.truncated_tokens,
                "probe_text": node.probe_text,
                "probe_ids": node.probe_ids,
                "probe_logprobs": node.probe_logprobs,
                "probe_mask": node.probe_mask,
                "reference_logprobs": node.reference_logprobs,
                "target_logprobs": node.target_logprobs,
                "response_texts": node.response_texts,
                "response_ids": node.response_ids,
                "response_scores": node.response_scores,
                "score": None if math.isnan(node.score) else node.score,
                "probe_score": node.probe_score,
                "novelty": node.novelty,
                "reward": node.reward,
                "failure": node.failure,
            }


def _graph(rows: list[dict[str, Any]]) -> Graph:
    children: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        children.setdefault(row["parent"], []).append(row)

    first = rows[0]
    prompt = Prompt(first["prompt_id"], first["prompt_text"])
    return Graph(prompt, first["iteration"], _grown("", children))


# No closure: one that calls itself would keep the rows until the collector of cycles comes.
def _grown(parent: str, children: dict[str, list[dict[str, Any]]]) -> tuple[Node, ...]:
    rows = children.get(parent, [])
    return tuple(_node(row, _grown(row["path"], children)) for row in rows)


def _node(row: dict[str, Any], children: tuple[Node, ...]) -> Node:
    return Node(
        path=tuple(int(part) for part in row["path"].split(".")),
        context=Context(tuple(row["context_ids"]), row["truncated_tokens"]),
        probe=Probe(
            text=row["probe_text"],
            token_ids=tuple(row["probe_ids"]),
            logprobs=tuple(row["probe_logprobs"]),
            mask=tuple(row["probe_mask"]),
            reference_logprobs=tuple(row["reference_logprobs"]),
            score=row["probe_score"],
            novelty=row["novelty"],
        ),
        outcome=_outcome(row),
        reward=row["reward"],
        children=children,
    )


def _outcome(row: dict[str, Any]) -> Replies | Failure:
    if row["failure"]:
        return Failure(row["failure"])
    return Replies(
        texts=tuple(row["response_texts"]),
        scores=tuple(row["response_scores"]),
        token_ids=tuple(tuple(ids) for ids in row["response_ids"]),
        probe_logprobs=tuple(row["target_logprobs"]),
    )
