import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from registry_project import enter_project

from astra_core.engine.machine import Machine
from tasks.machine.doctor import DVC_CONFIG, CheckResult, diagnose, fix_all
from tasks.tracking.store import connect

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder in which the doctor finds no problem."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / ".dvc" / "site"))
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").touch()
    version = importlib.metadata.version("pytest")
    (tmp_path / "requirements.lock").write_text(f"# pinned\npytest=={version}\n")
    return tmp_path


def _problems() -> dict[str, CheckResult]:
    return {finding.subject: finding for finding in diagnose() if not finding.ok}


def test_a_sound_machine_has_no_problem(project):
    assert {} == _problems()


@pytest.mark.parametrize(
    ("line", "subject", "problem"),
    [
        ("pytest==1.2.3", "pytest", "must be 1.2.3, got "),
        ("no-such-package==1.0", "no-such-package", "must be 1.0, got none"),
    ],
)
def test_a_package_that_is_not_as_locked_is_a_problem(project, line, subject, problem):
    (project / "requirements.lock").write_text(f"{line}\n")
    finding = _problems()[subject]

    assert finding.problem.startswith(problem)
    assert "make setup" == finding.advice
    (project / "stage.sh").touch()  # of `astra init`
    assert _problems()[subject].advice.endswith(" -r requirements.txt")


def test_only_the_pins_for_this_machine_count(project):
    line = "no-such-package==1.0 ; python_full_version < '3' \\\n    --hash=sha256:00\n"
    (project / "requirements.lock").write_text(line)

    assert {} == _problems()


def test_torch_has_a_lock_of_its_own(project):
    (project / "requirements-torch.lock").write_text("torch==1.0\n")

    assert "must be 1.0, got " in _problems()["torch"].problem


def test_the_build_of_a_package_is_no_difference(project):
    version = importlib.metadata.version("pytest")
    (project / "requirements.lock").write_text(f"pytest=={version}+cpu\n")

    assert {} == _problems()


def test_a_missing_lock_file_is_a_problem(project):
    (project / "requirements.lock").unlink()

    assert ["requirements.lock"] == list(_problems())


def test_a_folder_without_dvc_is_a_problem(project):
    (project / ".dvc" / "config").unlink()

    assert ["DVC repository"] == list(_problems())


def test_a_pipeline_that_dvc_cannot_read_is_a_problem_as_status_says(project):
    (project / "dvc.yaml").write_text("stages: [")

    assert "DVC must be able to read" in _problems()["DVC repository"].problem


@pytest.mark.real
def test_a_store_that_status_calls_away_is_a_problem(project):
    (project / "mlflow.db").write_bytes(b"no database" * 100)

    assert "file is not a database" in _problems()["MLflow's store"].problem


def test_a_file_in_the_place_of_a_folder_is_a_problem(project):
    (project / "data").touch()

    assert ["folder data"] == list(_problems())


def test_a_machine_without_git_is_a_problem(project, monkeypatch):
    monkeypatch.setenv("PATH", str(project))

    assert ["git"] == list(_problems())


def test_a_problem_has_the_command_that_fixes_it():
    finding = CheckResult(
        "git", ok=False, problem="must be there, got none", advice="apt-get install git"
    )

    expected = "problem  git: must be there, got none; fix it with: apt-get install git"
    assert expected == finding.line()
    assert "ok       git" == CheckResult("git", ok=True).line()


@pytest.mark.real
def test_prefect_s_server_can_be_imported():
    # FastAPI 0.155 and later break it at import, and `pip check` calls the pair fine. In a process
    # of its own: the import leaves a server's settings behind.
    done = subprocess.run(
        [sys.executable, "-c", "import prefect.server.api.server"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr


def test_what_can_be_fixed_is_fixed_and_the_rest_is_reported(project):
    (project / "data").mkdir(mode=0o500)
    (project / ".dvc" / "config").unlink()
    (project / "requirements.lock").write_text("no-such-package==1.0\n")
    problems = _problems()

    # A privileged user may write in a closed folder too.
    assert {"DVC repository", "folder data"} >= set(fix_all(problems.values()))
    assert {"no-such-package"} == set(_problems())
    assert (ROOT / ".dvc" / "config").read_text() == DVC_CONFIG


@pytest.mark.real
def test_a_version_whose_files_are_gone_is_a_problem(project, monkeypatch):
    enter_project(project, monkeypatch)
    (project / "files").mkdir()
    client = connect()
    client.create_registered_model("attacker")
    client.create_model_version("attacker", source=str(project / "files"))
    client.set_registered_model_alias("attacker", "champion", "1")

    assert {} == _problems()
    (project / "files").rmdir()
    (problem,) = _problems().values()
    assert "files of attacker version 1 (champion)" == problem.subject


def test_the_engine_line_is_the_machine_s(project):
    told = [finding.line() for finding in diagnose()]

    assert f"ok       engine: {Machine.here().describe()}" in told
