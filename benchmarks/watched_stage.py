"""``python -m benchmarks.watched_stage STAGE FILE``: a stage, and the seconds its models worked."""

import json
import sys
import time
from pathlib import Path

from astra_core.models.language_model import LanguageModel
from astra_core.training.update import Updates
from benchmarks.measures.trainer_overhead import Stopwatch
from tasks.__main__ import main as run
from tasks.builtin import language_model

# While models sample, read, are trained or are pretrained.
WORK = (
    (LanguageModel, "continuations"),
    (LanguageModel, "continuation_logprobs"),
    (Updates, "apply"),
    (language_model, "make_language_model"),
)


def main(stage: str, told: Path) -> int:
    """The exit status of the stage, after it has run and the seconds are written."""
    watch = Stopwatch(time.perf_counter)
    for owner, name in WORK:
        setattr(owner, name, watch.timed("models", getattr(owner, name)))
    status = run([stage])
    told.write_text(json.dumps(watch.seconds.get("models", 0.0)))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
