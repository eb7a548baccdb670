import json

import pytest
from each_row import each_row
from sweep_results import result

from flows.cli import run_command
from flows.sweeps.points import make_points
from tasks.records.reports import write_record


@pytest.fixture
def project(tmp_path, monkeypatch, restored):
    (tmp_path / "params.yaml").write_text("training: {lr: 1e-3}\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    return tmp_path


@pytest.mark.real
def test_a_dry_run_lists_the_points_and_runs_none(project, capsys):
    (point,) = make_points([("training.lr=1e-4",)], (0,))
    write_record(result(point.setting, 0, key=point.key), point.result)
    before = sorted(project.rglob("*"))

    assert 0 == run_command(["sweep", "--set", "training.lr=1e-4,2e-4", "--dry-run"])
    lines = capsys.readouterr().out.splitlines()
    assert [
        "finished     training.lr=1e-4 seed=0",
        "would run    training.lr=2e-4 seed=0",
        "2 points; nothing has run",
    ] == lines
    assert before == sorted(
        path for path in project.rglob("*") if not {".astra", ".prefect"} & {*path.parts}
    )
    assert 0 == run_command(["sweep", "--set", "training.lr=1e-4,2e-4", "--dry-run", "--json"])
    states = [point["state"] for point in json.loads(capsys.readouterr().out)["points"]]
    assert ["finished", "would run"] == states


@pytest.mark.real
def test_of_a_sampler_that_learns_a_dry_run_lists_the_first(project, capsys):
    pytest.importorskip("optuna", reason="needs optuna, of the extra sweep")
    drawn = ["sweep", "--sampler", "optuna", "--count", "6", "--seeds", "0..1", "--dry-run"]
    assert 0 == run_command([*drawn, "--set", "training.lr=log:1e-5..1e-3"])
    lines = capsys.readouterr().out.splitlines()

    assert f"{len(lines) - 1} points, the first of 12; nothing has run" == lines[-1]


@each_row(
    ("asked", "words"),
    [
        (["--set", "training.lr"], "--set must read section.key=value,value"),
        (["--set", "training.lr=1e-4,-1"], "training.lr: input should be greater than 0, got -1"),
        (["--jobs", "-1"], "--jobs must be at least 0, got -1"),
        (["--sampler", "random", "--count", "1000000000"], "at most 10000 points, got 1000000000"),
    ],
)
def test_a_mistake_is_one_line_before_a_server_starts(project, capsys, asked, words):
    assert 2 == run_command(["sweep", *asked])
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
