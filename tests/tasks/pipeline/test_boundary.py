"""The boundary: whatever a stage does, a person reads one line and a flow finds one file."""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import DataError, GateError, LostProcessError, PluginError
from tasks.params.schema import RunTraining
from tasks.pipeline.boundary import exits_refused, run_stage
from tasks.pipeline.failures import StageFailure, read_failure, write_failure
from tasks.pipeline.stage import Dep, Out, Stage, stage, stage_of

ROOT = Path(__file__).parents[3]
LOG = Path(".astra/logs/toy.log")
TRACE = f"the trace is in {LOG}"


@dataclass(frozen=True)
class Done:
    words: str

    def summary(self) -> str:
        return self.words


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """An empty project that a stage may run in, and the environment as it was afterwards."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_OFFLINE", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    before = dict(os.environ)
    yield tmp_path
    os.environ.clear()
    os.environ.update(before)


@dataclass(frozen=True)
class ToyParams:
    seed: int


@dataclass(frozen=True)
class ToyFiles:
    folder: Out = Path("data/toy")


@dataclass(frozen=True)
class Readable:
    folder: Dep = Path("data/first")


def _toy(act: Callable[[], str]) -> Callable[[str], Stage]:
    """What finds a stage that does ``act``."""

    @stage(name="toy")
    def act_once(params: ToyParams, files: ToyFiles = ToyFiles()) -> Done:
        return Done(act())

    return lambda _: stage_of(act_once)


def _raise(error: BaseException) -> Callable[[], str]:
    def act() -> str:
        raise error

    return act


def test_what_the_core_warns_of_is_a_line_on_the_screen_once(capfd, monkeypatch):
    # Prefect, once imported, has a handler there that prints what others warn of.
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])

    def act() -> str:
        for _ in range(2):
            logging.getLogger("astra_core.training.team").warning("%s is not used", "lr")
        logging.getLogger("elsewhere").warning("a library talks")
        return "3 prompts"

    assert 0 == run_stage("toy", find=_toy(act))
    assert "warning: lr is not used\n" == capfd.readouterr().err
    assert [] == logging.getLogger("astra_core").handlers


def test_a_stage_that_passes_is_one_line(capfd):
    def act() -> str:
        os.write(2, b"a library talks\n")
        return "3 prompts"

    assert 0 == run_stage("toy", find=_toy(act))
    out, err = capfd.readouterr()
    assert out.startswith("toy          3 prompts (")
    assert 1 == len(out.splitlines())
    assert not err
    assert "a library talks\n" == LOG.read_text()


def test_a_stage_whose_place_is_closed_says_so_before_it_works(capfd):
    Path("data").write_text("no folder")

    assert 2 == run_stage("toy", find=_toy(_raise(AssertionError("it worked"))))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: data/toy must be a place to write to, got ")


def test_an_abrupt_exit_is_a_failure_that_is_told(capfd):
    assert 2 == run_stage("toy", find=_toy(lambda: os._exit(0)))
    (line,) = capfd.readouterr().err.splitlines()
    assert "got os._exit(0) in " in line
    assert "PluginError" == read_failure("toy").error


def test_memory_that_ran_out_is_named(capfd):
    assert 2 == run_stage("toy", find=_toy(lambda: bytearray(1 << 60)))
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("error: this step must have more memory, got none")


def test_a_stage_that_passes_forgets_an_earlier_failure():
    write_failure(StageFailure("DataError", "x", retryable=False), "toy")
    run_stage("toy", find=_toy(lambda: "fine"))

    assert read_failure("toy") is None


@each_row(
    ("error", "status", "name", "line"),
    [
        (DataError("no rows; see x"), 2, "DataError", "error: n· r···; s·· x"),
        (GateError("61 of 256 failed"), 3, "GateError", "error: 6· o· 2·· f·····"),
        (KeyError("step"), 1, "KeyError", f"bug in stage toy: KeyError: 's···'; {TRACE}"),
        (ValueError("a\nb"), 1, "ValueError", f"bug in stage toy: ValueError: a ·; {TRACE}"),
        (KeyboardInterrupt(), 130, "Stopped", "toy stopped by SIGINT; start again to resume"),
    ],
)
def test_a_stage_that_fails_is_one_line_one_status_and_one_file(capfd, error, status, name, line):
    assert status == run_stage("toy", find=_toy(_raise(error)))
    out, err = capfd.readouterr()
    assert not out
    assert f"{line}\n" == err
    assert name == read_failure("toy").error
    assert "Traceback" in LOG.read_text()


def test_two_problems_are_two_lines(capfd):
    run_stage("toy", find=_toy(_raise(DataError("one\ntwo"))))

    assert "error: o··\nerror: t··\n" == capfd.readouterr().err


def test_the_trace_is_shown_to_who_asks(capfd):
    run_stage("toy", find=_toy(_raise(DataError("no rows"))), show_trace=True)
    err = capfd.readouterr().err

    assert 1 == err.count("Traceback")
    assert "DataError: no rows\n" in err


def test_a_stage_module_that_cannot_be_imported_is_a_bug_with_a_file(capfd):
    def find(_: str) -> Stage:
        raise SyntaxError

    assert 1 == run_stage("toy", find=find)
    assert "bug in stage toy: SyntaxError" in capfd.readouterr().err
    assert "SyntaxError" == read_failure("toy").error


def test_a_stage_whose_input_is_missing_says_what_makes_it(capfd):
    @stage(name="toy")
    def read(params: ToyParams, files: Readable = Readable()) -> Done:
        return Done("")

    assert 2 == run_stage("toy", find=lambda _: stage_of(read))
    assert "must find data/first" in capfd.readouterr().err


def test_the_whole_of_params_is_checked_before_a_stage_runs(capfd):
    path = Path("params.yaml")
    path.write_text(path.read_text().replace("name: profanity", "name: profanty"))

    assert 2 == run_stage("toy", find=_toy(lambda: "ran"))
    out, err = capfd.readouterr()
    assert not out
    assert "unknown scorer 'profanty'" in err


@dataclass(frozen=True)
class TrainingLike:
    training: RunTraining


def test_a_stage_under_dvc_asks_for_the_code_that_dvc_does_not_watch(capfd, monkeypatch):
    """The other half of the promise that an edit is seen: DVC knows all that a plug-in imports."""

    @stage(name="toy")
    def use(params: TrainingLike, files: ToyFiles = ToyFiles()) -> Done:
        """Uses a plug-in."""
        return Done("ran")

    use.__module__ = "tasks.stages.training"

    Path("mine.py").write_text(
        "import helper\nfrom astra_core.training.trainer import Trainer as Mine", "utf-8"
    )
    Path("helper.py").write_text("", "utf-8")
    path = Path("params.yaml")
    text = path.read_text("utf-8")
    path.write_text(text.replace("training:", "training:\n  trainer: mine.py:Mine", 1))
    assert text != path.read_text("utf-8")
    monkeypatch.setenv("DVC_STAGE", "toy")
    found = []
    for deps in ("[]", "[mine.py]", "[mine.py, helper.py]"):
        Path("dvc.yaml").write_text(f"stages: {{toy: {{deps: {deps}}}}}", "utf-8")
        found.append((run_stage("toy", find=lambda _: stage_of(use)), capfd.readouterr().err))

    assert [2, 2, 0] == [status for status, _ in found]
    assert (
        "dvc.yaml must name helper.py, which params.yaml reads; run 'astra render'" in found[1][1]
    )


@each_row(
    ("name", "value"),
    [("HF_HUB_OFFLINE", "1"), ("DO_NOT_TRACK", "true"), ("DVC_NO_ANALYTICS", "1")],
)
def test_a_stage_runs_offline_and_untracked(capfd, name, value):
    run_stage("toy", find=_toy(lambda: str(os.environ.get(name))))

    assert f"toy          {value} (" in capfd.readouterr().out


def test_the_hub_is_in_reach_when_params_name_it(capfd):
    path = Path("params.yaml")
    hub = f"source: hub\n  dataset: owner/name\n  revision: {'a' * 40}"
    path.write_text(path.read_text().replace("source: builtin", hub, 1))
    run_stage("toy", find=_toy(lambda: str(os.environ.get("HF_HUB_OFFLINE"))))

    assert "toy          None (" in capfd.readouterr().out


def test_what_the_user_set_stays(capfd, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    run_stage("toy", find=_toy(lambda: os.environ["HF_HUB_OFFLINE"]))

    assert "toy          0 (" in capfd.readouterr().out


SLEEPER = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from tasks.pipeline.boundary import run_stage
from tasks.pipeline.failures import stop_on_terminate
from tasks.pipeline.stage import Out, stage, stage_of

class Done:
    def summary(self) -> str:
        return "slept"

@dataclass(frozen=True)
class Params:
    seed: int

@dataclass(frozen=True)
class Files:
    folder: Out = Path("data/toy")

@stage(name="toy")
def sleep(params: Params, files: Files = Files()) -> Done:
    Path("asleep").touch()
    time.sleep(60)
    return Done()

stop_on_terminate()
sys.exit(run_stage("toy", find=lambda _: stage_of(sleep)))
"""


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.wide)],
)
@pytest.mark.real
def test_a_signal_ends_a_stage_with_a_line_and_its_status(tmp_path, number, status):
    with subprocess.Popen(
        [sys.executable, "-c", SLEEPER], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "asleep").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(number)
        _, err = process.communicate(timeout=240)

    assert status == process.returncode
    assert f"toy stopped by {number.name}; start again to resume\n" == err
    assert read_failure("toy", folder=tmp_path / ".astra/failures").retryable


def test_a_stage_for_one_process_refuses_to_be_one_of_two(monkeypatch, capfd):
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert 2 == run_stage("toy", find=_toy(lambda: "ran"))
    out, err = capfd.readouterr()
    assert not out
    assert "error: stage toy must run in one process, got WORLD_SIZE 2; start it" in err


def _parallel(act: Callable[[], str]) -> Callable[[str], Stage]:
    """What finds a stage that several processes can run together."""
    found = replace(_toy(act)("toy"), is_parallel=True)
    return lambda _: found


@pytest.fixture
def second_of_two(monkeypatch):
    """Makes this process the second of two."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")


def test_only_the_first_process_says_what_came_of_it(second_of_two, capfd):
    LOG.parent.mkdir(parents=True)
    LOG.write_text("of the first")

    assert 0 == run_stage("toy", find=_parallel(lambda: "done"))
    assert ("", "") == capfd.readouterr()
    assert "of the first" == LOG.read_text()


def test_of_several_processes_the_first_that_fails_tells(second_of_two, capfd):
    fail = _parallel(_raise(DataError("no rows")))

    assert 2 == run_stage("toy", find=fail)
    assert "error: n· r···\n" == capfd.readouterr().err
    assert 2 == run_stage("toy", find=fail)
    assert not capfd.readouterr().err
    assert "DataError" == read_failure("toy").error


@pytest.mark.parametrize("error", [LostProcessError("gone"), KeyboardInterrupt()])
def test_a_child_leaves_it_to_its_parent_to_tell_who_was_lost(second_of_two, capfd, error):
    assert 143 == run_stage("toy", find=_parallel(_raise(error)), is_child=True)
    assert ("", "") == capfd.readouterr()
    assert read_failure("toy") is None


@each_row("status", [0, 7])
def test_an_abrupt_exit_is_an_error_that_names_its_place(status):
    before = os._exit
    told = rf"must end by itself, got os\._exit\({status}\) in .*test_boundary\.py, line \d+"
    with pytest.raises(PluginError, match=told), exits_refused():
        os._exit(status)

    assert before is os._exit


@pytest.mark.real
def test_a_forked_process_ends_as_it_asks_to():
    with exits_refused():
        child = os.fork()
        if child == 0:
            os._exit(7)
        status = os.waitpid(child, 0)[1]

    assert 7 == os.waitstatus_to_exitcode(status)
