"""Sweeps whose points have run, so that what is asked is what a sweep does beside them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sweep_results import result

from astra_core.errors import ConfigurationError
from flows.errors import StageError
from flows.settings import change_params
from flows.sweeps.flow import default_jobs, sweep
from flows.sweeps.points import make_points
from tasks.params.schema import Params
from tasks.records.reports import write_record
from tasks.tracking.runs import PARENT_TAG
from tasks.tracking.store import connect

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
RATES = ["training.lr=1e-4,2e-4"]


@pytest.fixture
def project(tmp_path, monkeypatch, prefect_server, restored):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    change_params(["flow.retries=0"])
    return tmp_path


def _leave(seeds, *, but=0):
    """Results of all points but the last ones."""
    points = make_points([("training.lr=1e-4",), ("training.lr=2e-4",)], seeds)
    for place, point in enumerate(points[: len(points) - but]):
        found = result(point.setting, point.seed, key=point.key, dev=0.1 * place)
        write_record(replace(found, success=found.baseline), point.result)
    return points


def test_a_sweep_whose_points_have_run_only_tells_them(project, capsys):
    _leave((0, 1))
    found = sweep(RATES, seeds="0..1", offer=False)

    assert [("training.lr=1e-4",), ("training.lr=2e-4",)] == [row.setting for row in found.rows]
    assert ["training.lr=2e-4"] == found.record()["best"]
    assert 4 == capsys.readouterr().out.count("finished")
    assert (
        "| training.lr=2e-4 (best) | 2 |" in (project / f"sweeps/{found.name}/sweep.md").read_text()
    )
    client = connect()
    run = client.get_run(found.run_id)
    assert "FINISHED" == run.info.status
    assert 0.1 == run.data.metrics["best/attack_success_rate"]
    assert {"sweep.json", "sweep.md"} == {f.path for f in client.list_artifacts(found.run_id)}
    assert PARENT_TAG not in run.data.tags
    # The same command once more is the same sweep.
    assert found.run_id == sweep(RATES, seeds="0..1", offer=False).run_id


def test_a_point_that_fails_is_reported_and_the_others_count(project, capsys):
    points = _leave((0,), but=1)
    found = sweep(RATES, offer=False)

    assert {points[1].name} == set(found.failed)
    assert "DVC cannot run stage prompts" in found.failed[points[1].name]
    assert [points[0].setting] == [row.setting for row in found.rows]
    assert "failed       training.lr=2e-4 seed=0" in capsys.readouterr().out
    assert "FAILED" == connect().get_run(found.run_id).info.status


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": "bayes"}, "--sampler must be one of"),
        ({"jobs": -1}, "--jobs must be at least 0, got -1; 0 chooses by the machine"),
        ({"count": 0}, "--count must be at least 1, got 0"),
        ({"count": 10**9, "sampler": "random"}, "at most 10000 points, got 1000000000: 1000000000"),
        ({"settings": ["seed_=0..999", "lr=0..999"], "seeds": "0..999"}, "got 1000000000: 1000000"),
        ({"settings": ["training.lr=-1,1"]}, "training.lr"),
        ({"settings": ["training.algorithm.name=dpo,none"]}, "none"),
    ],
)
def test_a_mistake_is_reported_before_anything_runs(project, options, words):
    with pytest.raises(ConfigurationError, match=words):
        sweep(**options)
    assert not (project / "sweeps").exists()


def test_a_sweep_without_a_good_point_is_an_error(project):
    with pytest.raises(StageError, match="must end with a point that went well"):
        sweep(["training.lr=1e-4"], offer=False)


def test_points_run_side_by_side_only_where_models_are_tiny():
    plain = Params()
    own = {"source": "folder", "path": Path("m")}
    large = plain.model_copy(
        update={"models": type(plain.models).model_validate({"attacker": own, "target": own})}
    )

    assert default_jobs(plain) >= 1
    assert 1 == default_jobs(large)
