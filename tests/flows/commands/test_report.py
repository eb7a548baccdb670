import json
import shutil
from pathlib import Path

import pytest
from registry_project import enter_project, register, write_project
from typer.testing import CliRunner

from astra_core.errors import DataError
from flows.cli import app
from flows.commands import report

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path, monkeypatch, restored):
    enter_project(tmp_path, monkeypatch)
    for name in ("params.yaml", "dvc.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def _shown(*words):
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert 0 == result.exit_code
    return result.stdout


def test_an_empty_registry_is_one_line_and_not_made(project):
    (project / "mlflow.db").unlink()

    with pytest.raises(DataError, match="got an empty registry"):
        _shown("report")
    assert not (project / "mlflow.db").exists()


def test_the_report_is_a_file_markdown_or_json(project, monkeypatch):
    write_project(project)
    register()
    (project / "reports/report.html").unlink()
    opened = []
    monkeypatch.setattr(report.webbrowser, "open", lambda place: opened.append(place) or True)

    assert "reports/report.html\n" == _shown("report", "--open")
    assert (project / "reports/report.html").is_file()
    assert [(project / "reports/report.html").as_uri()] == opened
    assert "reports/report_1.html\n" == _shown("report", "candidate")
    assert _shown("report", "1", "--md").startswith("# Red-team report: attacker version 1\n")
    assert 0.6 == json.loads(_shown("report", "--json"))["figures"]["final/attack_success_rate"]


def test_without_a_receipt_the_candidate_is_meant(project):
    write_project(project)
    register()
    (project / "reports/registration.json").unlink()

    assert "attacker version 1" in _shown("report", "--md")


def test_two_versions_are_compared_in_text_json_or_a_page(project):
    write_project(project)
    register()

    assert "chance alone could explain" in _shown("compare", "1", "candidate")
    assert "" == json.loads(_shown("compare", "1", "1", "--json"))["obstacle"]
    assert "reports/compare_1_1.html\n" == _shown("compare", "1", "1", "--html")
    assert "Paired differences" in (project / "reports/compare_1_1.html").read_text("utf-8")
