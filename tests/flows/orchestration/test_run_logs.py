"""What a run says is in its own logs: by the flow, by its stages, and where a stage broke."""

import time

import pytest

from flows.orchestration.run_logs import told_to_run
from flows.orchestration.stages import run_stage
from tasks.machine.console import complain, say
from tasks.params.schema import FlowConfiguration

pytestmark = pytest.mark.real

SPEAKS = """\
from pathlib import Path
from tasks.machine.console import complain, progress, say
say("toy          12 prompts")
complain("warning: one prompt is short")
with progress("training", 40) as advance:
    advance(10)
Path("out.txt").write_text("done")
"""
BREAKS = """\
import sys
from pathlib import Path
from tasks.pipeline.boundary import run_stage


def broken():
    raise RuntimeError("toidi diputs uoy"[::-1])


def find(name):
    broken()


sys.exit(run_stage("toy", find=find))
"""
CRASHES = """\
import faulthandler, os
from pathlib import Path
Path(".astra/logs").mkdir(parents=True, exist_ok=True)
with open(".astra/logs/toy.log", "w") as log:
    log.write("what a library quoted\\n")
    log.flush()
    faulthandler.enable(log)
    os.kill(os.getpid(), 11)
"""


@pytest.fixture
def logged(in_flow):
    """The logs of a flow run that calls a function: level, text and whether a task said it."""

    def call(function, *arguments, **options):
        from prefect.client.orchestration import get_client
        from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
        from prefect.logging.handlers import APILogHandler
        from prefect.runtime import flow_run

        found = {}

        def run():
            found["id"] = flow_run.id
            return function(*arguments, **options)

        in_flow(run)
        APILogHandler().flush()
        wanted = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[found["id"]]))
        with get_client(sync_client=True) as client:
            logs = client.read_logs(wanted)
        return [(log.level, log.message, log.task_run_id is not None) for log in logs]

    return call


def test_the_lines_of_a_stage_are_in_the_logs_of_its_task(toy, logged):
    toy(SPEAKS)
    logs = logged(run_stage, "toy", FlowConfiguration())

    assert (20, "toy          12 prompts", True) in logs
    assert (30, "warning: one prompt is short", True) in logs


def test_a_bug_shows_the_end_of_its_trace_masked(toy, logged):
    toy(BREAKS)
    logs = logged(run_stage, "toy", FlowConfiguration(retries=0))
    (tail,) = [text for level, text, _ in logs if level == 40 and "in broken" in text]

    assert "RuntimeError" in tail
    assert not any("idiot" in text for _, text, _ in logs)


def test_a_crash_in_compiled_code_shows_where_and_not_what_libraries_said(toy, logged):
    toy(CRASHES)
    logs = logged(run_stage, "toy", FlowConfiguration(retries=0))

    assert any("Segmentation fault" in text and "toy.py" in text for _, text, _ in logs)
    assert not any("what a library quoted" in text for _, text, _ in logs)


def test_what_the_flow_says_is_its_own_and_silence_is_for_debugging(toy, logged):
    toy("")

    def speak():
        with told_to_run("quiet", silence_s=0.1):
            complain("error: something is wrong")
            time.sleep(1.2)
        say("nobody follows any more")

    logs = logged(speak)

    assert (40, "error: something is wrong", False) in logs
    assert not any("at work for" in text for _, text, _ in logs)  # of interest to debuggers
    assert not any("nobody follows" in text for _, text, _ in logs)


def test_outside_of_a_run_nothing_is_followed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with told_to_run("toy"):
        say("hello")

    assert "hello\n" == capsys.readouterr().out
    assert [] == list(tmp_path.iterdir())
