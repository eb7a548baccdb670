"""Every script of docs/extending.md and its further pages runs as it stands, beside tiny models."""

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pages import ROOT, blocks
from small_world import PARAMS, write_world

from astra_parts.testing import tiny_language_model
from tasks.pipeline.stage import stage_of
from tasks.stages import rollouts

PAGE = ROOT / "docs" / "extending.md"
NOTEBOOK = "tasks.stages.training"
FURTHER = [
    ROOT / "docs" / name
    for name in ("prompts.md", "state_and_figures.md", "agents.md", "rewards.md")
]
OWN = [code for code in blocks(PAGE, "python") if NOTEBOOK not in code]
SCRIPTS = [*OWN, *(code for page in FURTHER for code in blocks(page, "python"))]
TITLES = re.findall(r"^## (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed, role in enumerate(("attacker", "target")):
        tiny_language_model(seed=seed).save(folder / role)
    return folder


@pytest.mark.wide
@pytest.mark.parametrize("number", range(len(SCRIPTS)), ids=lambda number: f"script-{number}")
def test_a_script_of_the_page_runs_as_it_stands(number, models, tmp_path, monkeypatch, capsys):
    (tmp_path / "my").mkdir()
    for role in ("attacker", "target"):
        (tmp_path / "my" / role).symlink_to(models / role)
    (tmp_path / "script.py").write_text(SCRIPTS[number], "utf-8")
    monkeypatch.chdir(tmp_path)

    # As ``python script.py``: its classes are found as ``__main__:Name``.
    runpy.run_path("script.py", run_name="__main__")


def test_the_page_is_short_and_every_pattern_has_a_script():
    without = ("From params.yaml",)

    assert len(PAGE.read_text("utf-8").splitlines()) <= 370
    assert len(OWN) >= len([title for title in TITLES if title not in without])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project with tiny models whose params name the trainer that the page names."""
    folder = tmp_path_factory.mktemp("project")
    (named,) = (yaml.safe_load(block) for block in blocks(PAGE, "yaml"))
    record = PARAMS.model_dump(mode="json")
    record["training"] |= named["training"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        write_world(folder)
        (folder / "params.yaml").write_text(yaml.safe_dump(record), "utf-8")
        (folder / "plugins").symlink_to(ROOT / "plugins")
        stage_of(rollouts.collect_rollouts).run(PARAMS)
        yield folder


@pytest.mark.wide
def test_a_trainer_named_in_params_is_the_one_that_trains(world, capsys):
    """In a notebook, and in the process that ``dvc repro`` and ``astra run`` start."""
    (notebook,) = (code for code in blocks(PAGE, "python") if NOTEBOOK in code)
    exec(compile(notebook, "notebook", "exec"), {})  # noqa: S102 - a page of ours
    reports = [json.loads(Path("reports/training.json").read_text("utf-8"))]
    for folder in Path("runs").iterdir():
        folder.rename(folder.with_name("of the notebook"))
    subprocess.run([sys.executable, "-m", "tasks", "training"], check=True, capture_output=True)
    reports.append(json.loads(Path("reports/training.json").read_text("utf-8")))

    assert "eval/hardest" == reports[0]["best"]["metric"]
    assert reports[0] == reports[1]
    models = sorted(path.name for path in Path("runs").glob("*/checkpoints/model_*"))
    assert 2 * ["model_000000"] == models[:2]


@pytest.mark.real
def test_a_command_reads_the_plugin_that_the_stages_use(world):
    """``astra check`` looks in the project, not only in its own folder (-P is how it starts)."""
    command = [sys.executable, "-P", "-m", "flows.cli", "check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (0, "") == (done.returncode, done.stderr)
