"""``python -m benchmarks.watched_stage STAGE FILE``: a stage, and what it took.

The file has the seconds in which models worked, the replies that a local target was asked for, and
the most memory that the process held.
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from astra_core.models.language_model import LanguageModel
from astra_core.targets.causal_lm import CausalLM
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
    """The exit status of the stage, after it has run and the file is written."""
    watch, asked, respond = Stopwatch(time.perf_counter), [0], CausalLM.respond

    def count(self: CausalLM, conversations: Any, keys: Any, *rest: Any, **more: Any) -> Any:
        asked[0] += sum(map(len, keys))
        return respond(self, conversations, keys, *rest, **more)

    CausalLM.respond = count  # type: ignore[method-assign]
    for owner, name in WORK:
        setattr(owner, name, watch.timed("models", getattr(owner, name)))
    status = run([stage])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"models": watch.seconds.get("models", 0.0), "replies": asked[0], "peak_bytes": peak}
    told.write_text(json.dumps(found))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
