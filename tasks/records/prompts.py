"""The prompts of a split, as the later stages read them."""

from pathlib import Path

from astra_core.errors import DataError
from astra_core.rollout import Prompt
from tasks.records.prompt_table import METADATA, prompt_schema, read_metadata

_NEEDED = ("prompt_id", "text")


def read_prompts(path: Path, *, limit: int | None = None) -> list[Prompt]:
    """The first ``limit`` prompts of one split, in file order.

    Raises DataError if the file is missing, has no row or is not a table of prompts.
    """
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    try:
        names = set(pq.read_schema(path).names)
        schema = prompt_schema((*_NEEDED, METADATA) if METADATA in names else _NEEDED)
        table = pq.read_table(path, columns=schema.names).cast(schema)
    except (OSError, ArrowException, KeyError, ValueError) as error:
        msg = (
            f"{path} must be a table of prompts, got {type(error).__name__}; run the stages before"
        )
        raise DataError(msg) from error
    if any(table[name].null_count for name in _NEEDED):
        msg = f"{path} must hold a text and an id in each row, got null; run the stages before"
        raise DataError(msg)
    rows = table.slice(0, limit).to_pylist()
    if not rows:
        msg = f"{path} must hold at least one prompt, got 0; see reports/validation.md"
        raise DataError(msg)
    try:
        return [
            Prompt(row["prompt_id"], row["text"], read_metadata(row.get(METADATA))) for row in rows
        ]
    except (DataError, ValueError, TypeError, RecursionError) as error:
        msg = (
            f"{path} must hold a mapping of plain values as {METADATA} in each row, "
            f"got {type(error).__name__}; run the stages before"
        )
        raise DataError(msg) from error
