"""The prompts of a split, as the later stages read them."""

from pathlib import Path

from astra_core.errors import DataError
from astra_core.rollout import Prompt


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
