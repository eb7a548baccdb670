from pathlib import Path

import pytest

from flows.errors import PassingStageError, StageError, StageTimeoutError
from flows.runs.attempts import StageOutcome, run_command
from flows.servers.processes import stage_command

FAIL = """\
import sys
from tasks.pipeline.failures import StageFailure, write_failure
write_failure(StageFailure("GateError", "dev must hold 20 prompts, got 3", retryable=False), "toy")
sys.exit(3)
"""


def test_a_failure_is_raised_in_the_stages_own_words(toy):
    toy(FAIL)
    with pytest.raises(StageError, match="dev must hold 20 prompts, got 3") as told:
        run_command("toy", stage_command("tasks.pipeline.reproduction", "toy"), timeout_s=60.0)

    assert not isinstance(told.value, PassingStageError)


def test_a_limit_is_an_error_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StageTimeoutError, match=r"stage toy must end within 0\.1 s; raise"):
        run_command("toy", ["sleep", "60"], timeout_s=0.1)


def test_an_outcome_with_an_error_raises_it():
    done = StageOutcome("toy", "Completed", 1.0, 1)

    assert done is done.require_done()
    with pytest.raises(StageError, match="own words"):
        StageOutcome("toy", "Failed", 1.0, 1, error=StageError("own words")).require_done()
    assert not Path("out.txt").exists()
