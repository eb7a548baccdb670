"""What params.yaml may name outside of the pipeline."""

from pathlib import Path

import pytest

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from tasks.params.inputs import check_inputs
from tasks.params.models import ModelsConfiguration, ModelSource
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import Params, RunTraining
from tasks.pipeline.order import stages


def _prompts(**paths):
    return {"prompts": PromptsConfiguration(source="file", **paths)}


def _model(role):
    def section(path):
        models = ModelsConfiguration(**{role: ModelSource(source="folder", path=path)})
        return {"models": models}

    return section


def _resume(path):
    return {"training": RunTraining(checkpoint={"resume": str(path)})}


KEYS = {
    "prompts.path": lambda path: _prompts(path=path),
    "prompts.dev_path": lambda path: _prompts(path=Path("my/prompts.txt"), dev_path=path),
    "models.attacker.path": _model("attacker"),
    "models.target.path": _model("target"),
    "models.reference.path": _model("reference"),
    "training.checkpoint.resume": _resume,
}
MADE = [path for stage in stages().values() for path in stage.products]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that has run, and links into what it made."""
    monkeypatch.chdir(tmp_path)
    for folder in ("models/attacker", "data/prompts", "my/model", ".dvc/cache"):
        Path(folder).mkdir(parents=True)
    for file in ("models/attacker/config.json", "my/model/config.json", "my/prompts.txt"):
        Path(file).touch()
    Path("my/link").symlink_to(tmp_path / "models/attacker")
    # As DVC leaves a file with ``cache.type symlink``.
    Path(".dvc/cache/aa").touch()
    Path("data/prompts/dev.parquet").symlink_to(tmp_path / ".dvc/cache/aa")
    return tmp_path


def _refusal(key, path):
    with pytest.raises(ConfigurationError, match=rf"^{key} must lie outside") as refusal:
        check_inputs(Params(**KEYS[key](Path(path))))
    assert 1 == len(str(refusal.value).splitlines())
    return str(refusal.value)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("path", "product"),
    [
        ("models/attacker", "training makes models/attacker"),
        ("models/attacker/deeper", "training makes models/attacker"),
        ("my/../models/attacker", "training makes models/attacker"),
        ("my/link", "training makes models/attacker"),
        ("my/link/deeper", "training makes models/attacker"),
        ("data/prompts/dev.parquet", "prompts makes data/prompts"),
        ("models", "models makes models/base"),
        (".", "prompts makes data/prompts"),
    ],
)
def test_what_a_stage_makes_is_no_input(project, key, path, product):
    message = _refusal(key, path)

    assert f"stage {product}; copy what you want" in message
    # An attacker that was registered is in no stage's way.
    way = f"or set {key.removesuffix('.path')}.source to version"
    assert key.startswith("models.") == message.endswith(way)


@pytest.mark.parametrize("key", ["prompts.path", "models.target.path"])
@pytest.mark.parametrize("made", MADE, ids=str)
def test_no_product_of_any_stage_is_an_input(project, key, made):
    assert str(made) in _refusal(key, made)
    _refusal(key, project / made)


def test_files_beside_the_pipeline_are_inputs(project):
    for section in (
        _prompts(path=Path("my/prompts.txt"), dev_path=project / "my/prompts.txt"),
        _model("attacker")(Path("my/model")),
        _resume("runs/0123/checkpoints"),
        _resume("auto"),
        _resume("never"),
    ):
        check_inputs(Params(**section))


@pytest.mark.parametrize("key", list(KEYS)[:5])
def test_an_input_must_be_there(project, key):
    with pytest.raises(ConfigurationError, match=rf"^{key} must name a .*, got 'my/none'"):
        check_inputs(Params(**KEYS[key](Path("my/none"))))


def test_code_of_a_plug_in_must_lie_outside_of_what_the_pipeline_makes(project):
    def named(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "mine.py").write_text("", encoding="utf-8")
        trainer = Choice(name=f"{folder}/mine.py:Mine")
        return Params(training=RunTraining(trainer=trainer))

    check_inputs(named("my"))
    with pytest.raises(
        ConfigurationError, match=r"plug-in code models/attacker/mine\.py must lie outside"
    ):
        check_inputs(named("models/attacker"))
