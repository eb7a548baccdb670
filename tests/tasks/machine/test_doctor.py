import importlib
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row
from registry_project import enter_project
from small_world import PARAMS, write_world
from tiny_folders import torch_as_before

from astra_core.assembly import ModelFolders, load_system
from astra_core.engine.machine import Machine
from astra_core.engine.memory import keep_freed_memory
from tasks.machine import doctor as module
from tasks.machine.doctor import CEILINGS, DVC_CONFIG, CheckResult, diagnose, engine_line, fix_all
from tasks.records.models import read_model_paths
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


def _problems(project) -> dict[str, CheckResult]:
    return {finding.subject: finding for finding in diagnose(root=project) if not finding.ok}


def test_a_sound_machine_has_no_problem(project):
    assert {} == _problems(project)


@pytest.mark.parametrize(
    ("line", "subject", "problem"),
    [
        ("pytest==1.2.3", "pytest", "must be 1.2.3, got "),
        ("no-such-package==1.0", "no-such-package", "must be 1.0, got none"),
    ],
)
def test_a_package_that_is_not_as_locked_is_a_problem(project, line, subject, problem):
    (project / "requirements.lock").write_text(f"{line}\n")
    finding = _problems(project)[subject]

    assert finding.problem.startswith(problem)
    assert "make setup" == finding.advice


def test_only_the_pins_for_this_machine_count(project):
    line = "no-such-package==1.0 ; python_full_version < '3' \\\n    --hash=sha256:00\n"
    (project / "requirements.lock").write_text(line)

    assert {} == _problems(project)


def test_torch_has_a_lock_of_its_own(project):
    (project / "requirements-torch.lock").write_text("torch==1.0\n")

    assert "must be 1.0, got " in _problems(project)["torch"].problem


def test_the_build_of_a_package_is_no_difference(project):
    version = importlib.metadata.version("pytest")
    (project / "requirements.lock").write_text(f"pytest=={version}+cpu\n")

    assert {} == _problems(project)


def test_a_ceiling_that_is_broken_is_reported_with_its_reason(project, monkeypatch):
    version = importlib.metadata.version("sqlalchemy")
    major, minor = (int(part) for part in version.split(".")[:2])
    monkeypatch.setitem(CEILINGS, "sqlalchemy", ((major, minor), "it breaks"))
    finding = _problems(project)[f"sqlalchemy < {major}.{minor}"]

    assert f"must be below {major}.{minor}, got {version}: it breaks" == finding.problem


def test_a_missing_lock_file_is_a_problem(project):
    (project / "requirements.lock").unlink()

    assert [f"{project / 'requirements.lock'}"] == list(_problems(project))


def test_a_folder_without_dvc_is_a_problem(project):
    (project / ".dvc" / "config").unlink()

    assert ["DVC repository"] == list(_problems(project))


def test_a_pipeline_that_dvc_cannot_read_is_a_problem_as_status_says(project):
    (project / "dvc.yaml").write_text("stages: [")

    assert "DVC must be able to read" in _problems(project)["DVC repository"].problem


@pytest.mark.real
def test_a_store_that_status_calls_away_is_a_problem(project):
    (project / "mlflow.db").write_bytes(b"no database" * 100)

    assert "file is not a database" in _problems(project)["MLflow's store"].problem


def test_a_file_in_the_place_of_a_folder_is_a_problem(project):
    (project / "data").touch()

    assert ["folder data"] == list(_problems(project))


def test_a_machine_without_git_is_a_problem(project, monkeypatch):
    monkeypatch.setenv("PATH", str(project))

    assert ["git"] == list(_problems(project))


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


@each_row(("name", "ceiling"), [("fastapi", (0, 151)), ("sqlalchemy", (2, 1))])
def test_the_pins_that_pip_check_does_not_see_hold(name, ceiling):
    version = importlib.metadata.version(name)

    assert ceiling > tuple(int(part) for part in version.split(".")[:2])
    assert ceiling == CEILINGS[name][0]


def test_what_can_be_fixed_is_fixed_and_the_rest_is_reported(project):
    (project / "data").mkdir(mode=0o500)
    (project / ".dvc" / "config").unlink()
    (project / "requirements.lock").write_text("no-such-package==1.0\n")
    problems = _problems(project)

    # A privileged user may write in a closed folder too.
    assert {"DVC repository", "folder data"} >= set(fix_all(problems.values()))
    assert {"no-such-package"} == set(_problems(project))
    assert (ROOT / ".dvc" / "config").read_text() == DVC_CONFIG


@pytest.mark.real
def test_a_version_whose_files_are_gone_is_a_problem(project, monkeypatch):
    enter_project(project, monkeypatch)
    (project / "files").mkdir()
    client = connect()
    client.create_registered_model("attacker")
    client.create_model_version("attacker", source=str(project / "files"))
    client.set_registered_model_alias("attacker", "champion", "1")

    assert {} == _problems(project)
    (project / "files").rmdir()
    (problem,) = _problems(project).values()
    assert "files of attacker version 1 (champion)" == problem.subject


@pytest.fixture
def trained_project(tmp_path):
    with torch_as_before():
        write_world(tmp_path)
        (tmp_path / "params.yaml").write_text("training: {gradient_checkpointing: true}\n")
        yield tmp_path


def test_the_line_is_the_plan_of_the_project_s_attacker_as_it_would_train(trained_project):
    folders = ModelFolders.of(read_model_paths(trained_project / "models" / "base"))
    system = load_system(PARAMS.system, folders, machine=PARAMS.machine)
    plan = system.plan.learning(precision="fp32", recomputes=True)

    assert str(plan) == engine_line(trained_project)
    assert keep_freed_memory() == ("freed memory kept" in str(plan))


def test_without_models_the_line_is_the_machine_s(tmp_path):
    assert Machine.here().describe() == engine_line(tmp_path)


def test_models_too_large_to_load_in_passing_are_left_alone(trained_project, monkeypatch):
    monkeypatch.setattr(module, "MAX_LOADED_GB", 0.0)

    assert Machine.here().describe() == engine_line(trained_project)


def test_parameters_that_are_wrong_are_left_to_those_who_say_so(trained_project):
    (trained_project / "params.yaml").write_text("training: {no_such: 1}\n")

    assert Machine.here().describe() == engine_line(trained_project)
