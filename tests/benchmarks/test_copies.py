import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from benchmarks import copies
from benchmarks.copies import ROOT, copy_project, run_python
from tasks.pipeline.workspace import COPIED

TELL = (
    "import json, os, sys, benchmarks, tasks\n"
    "told = {'tasks': tasks.__file__, 'benchmarks': benchmarks.__file__, 'cwd': os.getcwd()}\n"
    "json.dump(told | {'environment': dict(os.environ)}, open('told.json', 'w'))\n"
    "print('said')\n"
    "sys.exit(int(sys.argv[1]))\n"
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    copy_project(folder, "seed=7", "training.lr=0.5")
    return folder


@pytest.mark.wide
def test_a_copy_has_what_stages_need_and_the_changes(copy):
    ours, theirs = (yaml.safe_load((root / "params.yaml").read_text()) for root in (ROOT, copy))

    assert (7, 0.5) == (theirs["seed"], theirs["training"]["lr"])
    assert ours != theirs
    assert all((copy / name).exists() for name in COPIED if (ROOT / name).exists())
    assert (ROOT / "dvc.yaml").read_bytes() == (copy / "dvc.yaml").read_bytes()
    assert not (copy / "tests").exists()


@pytest.mark.real
def test_a_copy_without_changes_is_the_project(tmp_path):
    copy_project(tmp_path)

    assert (ROOT / "params.yaml").read_bytes() == (tmp_path / "params.yaml").read_bytes()


@pytest.mark.wide
def test_a_change_that_params_refuse_is_an_error(copy):
    before = (copy / "params.yaml").read_bytes()
    change = "from flows.settings import change_params; change_params(['training.lr=-1'])"

    with pytest.raises(subprocess.CalledProcessError):
        run_python(copy, "-c", change)
    assert before == (copy / "params.yaml").read_bytes()


@pytest.mark.wide
def test_a_command_runs_on_the_copys_code_and_leaves_its_state_there(copy, capfd, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://elsewhere")
    run_python(copy, "-c", TELL, "0")
    told = json.loads((copy / "told.json").read_text())

    assert copy == Path(told["cwd"])
    assert copy in Path(told["tasks"]).parents
    assert ROOT in Path(told["benchmarks"]).parents
    assert f"sqlite:///{copy}/mlflow.db" == told["environment"]["MLFLOW_TRACKING_URI"]
    state = [told["environment"][name] for name in ("PREFECT_HOME", "DVC_SITE_CACHE_DIR")]
    assert all(Path(folder).is_relative_to(copy) for folder in state)
    assert os.environ["PATH"] == told["environment"]["PATH"]
    # A benchmark prints its own table alone.
    assert "" == capfd.readouterr().out


@pytest.mark.wide
def test_a_command_that_fails_is_an_error(copy):
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        run_python(copy, "-c", TELL, "3")


def test_stages_are_those_of_the_pipeline_before_registration():
    from tasks.pipeline.names import STAGE_NAMES

    assert tuple(STAGE_NAMES[: len(copies.STAGES)]) == copies.STAGES
    assert "registration" == STAGE_NAMES[len(copies.STAGES)]
