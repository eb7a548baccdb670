import pytest
from project import run_in
from shared import finished_project

from flows.runs.confirmation import standing_decision
from flows.runs.requests import RunRequest

# Fails where the run has imported one of them.
RUN = (
    "import sys; from flows.cli import run_command; status = run_command(['run']); "
    "sys.exit(status or bool({'prefect', 'torch'} & {*sys.modules}))"
)


def test_a_request_for_less_or_more_than_a_look_is_no_confirmation():
    assert standing_decision(RunRequest(force=True)) is None
    assert standing_decision(RunRequest(end="training")) is None


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_a_run_with_nothing_to_do_needs_neither_prefect_nor_torch(tmp_path_factory):
    said = run_in(finished_project(tmp_path_factory).folder, "-c", RUN).stdout

    assert 7 == said.count("up to date")
    assert "promotion      attacker version 1" in said
