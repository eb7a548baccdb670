"""What is built and installed is whole: it needs nothing of the folder that it was built from."""

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from pages import ROOT

pytestmark = pytest.mark.real

PACKAGES = ("astra_core", "astra_parts", "tasks", "flows")
MODULES = "astra_core.training.trainer, tasks.__main__, tasks.builtin.shipped, flows.cli"


FILES = (
    *("pyproject.toml", "README.md", "LICENSE", "params.yaml", "prefect.yaml"),
    *("requirements.lock", "requirements-torch.lock", ".dvcignore", ".gitignore"),
)


def _but_files(folder, names):
    return [name for name in names if Path(folder, name).is_dir()]


def _call(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built in a copy: a build leaves folders beside its sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
    for name in ("params", "plugins", ".dvc"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=_but_files)
    for name in FILES:
        shutil.copy(ROOT / name, folder / "source")
    build = ("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder))
    _call(sys.executable, "-m", "pip", *build, "./source", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment with the wheel in it, and the libraries of this one in reach."""
    folder = tmp_path_factory.mktemp("installed")
    _call(sys.executable, "-m", "venv", "--without-pip", "own", cwd=folder)
    python = folder / "own" / "bin" / "python"
    install = ("install", "--no-deps", "--no-index", str(wheel))
    _call(sys.executable, "-m", "pip", "--python", str(python), *install, cwd=folder)
    (site,) = (folder / "own" / "lib").glob("python*/site-packages")
    # After its own: that this environment knows the project too must not show.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "own"


def test_the_wheel_holds_every_file_of_the_packages(wheel):
    there = {
        path.relative_to(ROOT).as_posix()
        for name in PACKAGES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith(PACKAGES)}

    assert there == held


def test_what_is_installed_is_imported_from_where_it_is_installed(installed, tmp_path):
    code = f"import {MODULES}; print(*(m.__file__ for m in (astra_core, tasks, flows)), sep='\\n')"
    told = _call(installed / "bin" / "python", "-P", "-c", code, cwd=tmp_path)

    assert 3 == len(told.splitlines())
    assert all(Path(line).is_relative_to(installed) for line in told.splitlines())


def test_the_installed_command_answers(installed, tmp_path):
    import astra_core

    assert "Maintain:" in _call(installed / "bin" / "astra", "--help", cwd=tmp_path)
    told = _call(installed / "bin" / "astra", "--version", cwd=tmp_path)
    assert f"astra {astra_core.__version__}\n" == told
    astra, project = installed / "bin" / "astra", tmp_path / "new"
    _call(astra, "init", "new", cwd=tmp_path)
    told = _call(astra, "check", "--preset", "curiosity", cwd=project)
    assert "params.yaml is usable" == told.splitlines()[-1]
