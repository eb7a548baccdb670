"""The words that a run knows, by which invented words are recognised."""

from pathlib import Path

from astra_core.metrics.strategies import vocabulary_of
from tasks.records.prompt_table import SPLITS
from tasks.records.prompts import read_prompts
from tasks.records.rollouts import ROLLOUTS_FILE, read_rollouts


def read_vocabulary(valid: Path, rollouts: Path) -> frozenset[str]:
    """Words of the valid prompts and those common in the untrained attacker's rollouts.

    Args:
        valid: The folder that the validation stage wrote.
        rollouts: The file of the rollouts stage; if it is missing, only the prompts count.

    Raises:
        DataError: A table cannot be read.
    """
    paths = [path for split in SPLITS if (path := valid / f"{split}.parquet").is_file()]
    prompts = (prompt.text for path in paths for prompt in read_prompts(path))
    talk = rollouts / ROLLOUTS_FILE
    return vocabulary_of(prompts, read_rollouts(talk) if talk.is_file() else ())
