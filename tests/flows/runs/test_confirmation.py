import pytest
from project import run_in
from shared import finished_project

from flows.runs.confirmation import confirmed
from flows.runs.requests import RunRequest

# A run with nothing to do that would fail if it imported Prefect or torch.
NO_PREFECT = (
    "import sys; sys.modules['prefect'] = sys.modules['torch'] = None; "
    "from flows.cli import run_command; sys.exit(run_command(sys.argv[1:]))"
)


def test_a_request_for_less_or_more_than_a_look_is_no_confirmation():
    assert confirmed(RunRequest(force=True)) is None
    assert confirmed(RunRequest(end="training")) is None


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_a_run_with_nothing_to_do_needs_no_prefect_and_values_for_one_run_leave_params_yaml_alone(
    tmp_path, tmp_path_factory
):
    folder = finished_project(tmp_path_factory).copy_to(tmp_path / "project")
    before = {name: (folder / name).read_bytes() for name in ("params.yaml", "dvc.yaml")}
    prompts = (folder / "data/prompts/train.parquet").read_bytes()
    quick = run_in(folder, "-c", NO_PREFECT, "run").stdout
    some = ("run", "--set", "data_seed=7", "--to", "prompts")
    once = run_in(folder, "-m", "flows.cli", *some).stdout
    changed = (folder / "data/prompts/train.parquet").read_bytes()
    status = run_in(folder, "-m", "flows.cli", "status").stdout
    run_in(folder, "-m", "dvc", "repro", "-q", "prompts")

    assert 7 == quick.count("up to date")
    assert "promotion      attacker version 1" in quick
    assert before == {name: (folder / name).read_bytes() for name in before}
    assert "this run       data_seed: " in once
    assert "params.yaml  unchanged: data_seed held for this run" in once
    assert "promotion" not in once
    assert "prompts      would run: params.yaml" in status
    assert prompts != changed
    assert prompts == (folder / "data/prompts/train.parquet").read_bytes()
    assert "up to date" in run_in(folder, "-m", "dvc", "status").stdout
