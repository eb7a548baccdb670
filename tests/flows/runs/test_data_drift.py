"""The present reports against a champion's that a real store holds."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from registry_project import enter_project
from typer.testing import CliRunner

from flows.cli import app
from flows.runs.data_drift import DataDrift, told_drift
from tasks.params.schema import FlowConfiguration, Params
from tasks.records.data_profile import DataProfile
from tasks.tracking.store import connect

pytestmark = pytest.mark.real  # MLflow and its store take seconds
THEN = DataProfile("judge 1", 1000, {"characters": [500, 500], "score": [900, 100]})
LONGER = replace(THEN, counts={"characters": [100, 900], "score": [900, 100]})
TURNS = replace(THEN, attacker="ab" * 32)


def _report(path, profile, *, of_rollouts=False):
    checks = {"profile": asdict(profile)}
    record = {"num_turns": 8, "checks": checks} if of_rollouts else {"checks": [], **checks}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record), encoding="utf-8")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder whose champion's data were ``THEN`` and ``TURNS``."""
    enter_project(tmp_path, monkeypatch)
    Path("params.yaml").write_text("seed: 0\n", encoding="utf-8")
    _report(tmp_path / "then/validation.json", THEN)
    _report(tmp_path / "then/rollouts.json", TURNS, of_rollouts=True)
    client = connect()
    client.create_registered_model("attacker")
    experiment = client.create_experiment("e", artifact_location=(tmp_path / "a").as_uri())
    run = client.create_run(experiment).info.run_id
    client.log_artifacts(run, str(tmp_path / "then"), "data")
    client.create_model_version("attacker", source="x", run_id=run)
    client.set_registered_model_alias("attacker", "champion", "1")
    _report(tmp_path / "reports/validation.json", THEN)
    _report(tmp_path / "reports/rollouts.json", TURNS, of_rollouts=True)
    return tmp_path


def _shown(*words):
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert 0 == result.exit_code
    return result.stdout


def test_prompts_that_grew_are_told_in_a_line(project, capsys):
    _report(project / "reports/validation.json", LONGER)
    found = told_drift("validation", Params())

    assert ["characters"] == [each.what for each in found.large]
    assert "warning: the prompts drifted from those of champion version 1: characters" in (
        capsys.readouterr().err
    )
    assert "| prompts | characters |" in found.to_markdown()


def test_the_limit_decides_what_is_told(project, capsys):
    _report(project / "reports/validation.json", LONGER)
    params = Params(flow=FlowConfiguration(max_data_drift=9.0))

    assert () == told_drift("validation", params).large
    assert "" == capsys.readouterr().err


def test_equal_data_and_other_stages_are_silent(project, capsys):
    assert () == told_drift("rollouts", Params()).large
    assert told_drift("training", Params()) is None
    assert "" == capsys.readouterr().err


def test_what_does_not_compare_is_left_out_with_why(project):
    other = replace(TURNS, attacker="cd" * 32)
    _report(project / "reports/rollouts.json", other, of_rollouts=True)
    _report(project / "reports/validation.json", replace(THEN, judge="judge 2"))
    found = json.loads(_shown("drift", "--json"))

    assert ["characters"] == [each["what"] for each in found["drifts"]]
    assert [
        "scores of prompts, for another judge gave them",
        "rollouts, for they are another attacker's",
    ] == found["left_out"]


def test_the_command_has_a_line_for_each_respect(project):
    shown = _shown("drift").splitlines()

    assert 5 == len(shown)
    assert "no drift from the data of champion version 1" == shown[-1]


def test_a_report_that_is_missing_stops_no_run(project, capsys):
    (project / "reports/validation.json").unlink()

    assert told_drift("validation", Params()) is None
    assert "warning: drift of the data is unknown" in capsys.readouterr().err


def test_a_champion_without_profiles_is_no_sign_of_equal_data():
    found = DataDrift("1", (), ("prompts, of which one side has no profile yet",))

    assert "nothing to compare with the data of champion version 1" == found.summary()
