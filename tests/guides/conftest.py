"""A user's folder with two tiny models, and a small project whose training can be run."""

import logging
import shutil
from pathlib import Path

import pytest
import yaml
from guide_project import left
from small_world import PARAMS, write_world

from astra_parts.testing import tiny_language_model
from tasks.__main__ import main
from tasks.pipeline.stage import stage_of
from tasks.stages import rollouts

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """The pipeline is one more place of what each row's script shows."""
    for item in items:
        if "pipeline" in item.fixturenames and item.path.parent == HERE:
            item.add_marker(pytest.mark.wide)


@pytest.fixture(scope="session")
def _models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for seed, role in enumerate(("attacker", "target")):
        tiny_language_model(seed=seed).save(folder / role)
    return folder


@pytest.fixture
def here(_models, tmp_path, monkeypatch):
    """The working folder of a script: ``my/attacker`` and ``my/target`` are in it."""
    (tmp_path / "my").mkdir()
    for role in ("attacker", "target"):
        (tmp_path / "my" / role).symlink_to(_models / role)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A project as the stages before training leave it."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        write_world(folder)
        (folder / "plugins").mkdir()
        stage_of(rollouts.collect_rollouts).run(PARAMS)
    return folder


@pytest.fixture
def pipeline(world, monkeypatch, restored, capfd):
    """``python -m tasks training`` in that project, with changes to its params.yaml."""
    monkeypatch.chdir(world)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{world}/mlflow.db")
    levels = {name: logging.getLogger(name).level for name in list(logging.root.manager.loggerDict)}

    def run(*, keep_runs=False, training=None, without=(), **sections):
        record = PARAMS.model_dump(mode="json")
        record["training"] = {k: v for k, v in record["training"].items() if k not in without}
        # Every training moves it, so that the weights that are kept are never those it began with.
        record["training"] |= {"metric": "eval/kl_nats"} | (training or {})
        for name, own in sections.items():
            record[name] = {**record[name], **own} if isinstance(own, dict) else own
        Path("params.yaml").write_text(yaml.safe_dump(record), "utf-8")
        for made in ("reports/training.json", "reports/training_steps.csv"):
            Path(made).unlink(missing_ok=True)
        shutil.rmtree("models/attacker", ignore_errors=True)
        if not keep_runs:
            for state in ("runs", "models/checkpoint"):
                shutil.rmtree(state, ignore_errors=True)
        capfd.readouterr()
        status = main(["training"])
        said = capfd.readouterr()
        return left(status, said.out + said.err)

    yield run
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def plugin(world):
    """Writes a file below ``plugins/`` of the project; the import path of a class in it."""

    def write(name, code):
        file, _, cls = name.partition(":")
        (world / "plugins" / f"{file}.py").write_text(code, "utf-8")
        return f"plugins.{file}:{cls}"

    return write
