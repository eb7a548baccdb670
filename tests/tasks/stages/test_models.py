import json
from pathlib import Path

import pytest

from astra_core.config import Choice, MachineConfiguration, SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.models.pretrained import weights_digest
from astra_parts.testing import tiny_language_model
from tasks.builtin.shipped import RECIPE, shipped_model
from tasks.params.models import ModelsConfiguration
from tasks.params.schema import Params, RegistrationConfiguration
from tasks.records.models import read_model_paths
from tasks.stages.models import ModelsFiles, ModelsParams, ModelsSetup, prepare_models

MACHINE = MachineConfiguration(num_threads=1)
REGISTRATION = RegistrationConfiguration()


def configured(attacker, target, **more):
    record = {
        "attacker": {"source": "folder", "path": str(attacker)},
        "target": {"source": "folder", "path": str(target)},
        **more,
    }
    return ModelsConfiguration.read(record, where="models")


def prepare(seed, models, base, target="causal_lm"):
    system = SystemConfiguration(target=Choice(name=target))
    params = ModelsParams(seed, models, MACHINE, REGISTRATION, system)
    return prepare_models(ModelsSetup.of(params), ModelsFiles(base))


def test_a_target_without_weights_is_no_model_of_the_stage(tmp_path):
    tiny_language_model(seed=0).save(tmp_path / "attacker")
    models = configured(tmp_path / "attacker", tmp_path / "none")
    summary = prepare(0, models, tmp_path / "base", target="scripted")

    assert {"attacker", "reference"} == set(read_model_paths(tmp_path / "base"))
    assert "target" not in summary.summary()


def test_folders_stay_where_they_are_and_are_named_by_digest(tmp_path):
    for seed, name in enumerate(("attacker", "target")):
        tiny_language_model(seed=seed).save(tmp_path / name)
    models = configured(tmp_path / "attacker", tmp_path / "target")
    summary = prepare(0, models, tmp_path / "base")
    manifest = json.loads((tmp_path / "base/manifest.json").read_text())
    paths = read_model_paths(tmp_path / "base")

    assert tmp_path / "target" == paths["target"]
    assert paths["attacker"] == paths["reference"]
    assert weights_digest(tmp_path / "target") == manifest["target"]["digest"]
    assert manifest["target"]["digest"] != manifest["attacker"]["digest"]
    assert "attacker folder" in summary.summary()


def test_a_folder_in_the_project_is_named_from_there_and_moves_along(tmp_path, monkeypatch):
    before, after = tmp_path / "before", tmp_path / "after"
    tiny_language_model(seed=0).save(before / "my/attacker")
    tiny_language_model(seed=1).save(tmp_path / "target")
    monkeypatch.chdir(before)
    prepare(0, configured("my/attacker", tmp_path / "target"), Path("models/base"))
    monkeypatch.chdir(before.rename(after))
    manifest = json.loads(Path("models/base/manifest.json").read_text())
    paths = read_model_paths(Path("models/base"))

    assert ("my/attacker", str(tmp_path / "target")) == (
        manifest["attacker"]["path"],
        manifest["target"]["path"],
    )
    assert weights_digest(paths["attacker"]) == manifest["attacker"]["digest"]


def test_a_reference_of_its_own_is_used(tmp_path):
    for seed, name in enumerate(("attacker", "target", "reference")):
        tiny_language_model(seed=seed).save(tmp_path / name)
    reference = {"source": "folder", "path": str(tmp_path / "reference")}
    models = configured(tmp_path / "attacker", tmp_path / "target", reference=reference)
    prepare(0, models, tmp_path / "base")

    assert tmp_path / "reference" == read_model_paths(tmp_path / "base")["reference"]


@pytest.mark.real
def test_a_builtin_model_is_made_once_for_all_roles_and_is_reproducible(tmp_path):
    small = {"num_quarrels": 40, "num_dialogues": 40, "hidden_size": 16, "intermediate_size": 16}
    models = Params.read({"models": {"builtin": small}}, where="").models
    for name in ("one", "two"):
        prepare(7, models, tmp_path / name)
    paths = read_model_paths(tmp_path / "one")
    again = read_model_paths(tmp_path / "two")

    assert 1 == len(set(paths.values()))
    assert weights_digest(paths["target"]) == weights_digest(again["target"])


def test_the_default_builtin_model_is_the_shipped_one(tmp_path):
    models = ModelsConfiguration()
    shipped = shipped_model(models.builtin, seed=0)
    prepare(0, models, tmp_path / "base")
    target = read_model_paths(tmp_path / "base")["target"]

    names = {path.name for path in shipped.iterdir()} - {RECIPE}
    assert names == {path.name for path in target.iterdir()}
    for name in names:
        assert (shipped / name).read_bytes() == (target / name).read_bytes()


def test_damaged_weights_are_one_clear_line(tmp_path):
    tiny_language_model().save(tmp_path / "model")
    (tmp_path / "model/model.safetensors").write_bytes(b"damaged")
    models = configured(tmp_path / "model", tmp_path / "model")

    with pytest.raises(ConfigurationError, match="must be whole safetensors") as caught:
        prepare(0, models, tmp_path / "base")
    assert 1 == len(str(caught.value).splitlines())
    assert not (tmp_path / "base").exists()


def test_a_hub_id_that_cannot_be_reached_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    source = {"source": "hub", "repository": "nobody/nothing", "revision": "0" * 40}
    models = ModelsConfiguration.read({"attacker": source, "target": source}, where="models")

    with pytest.raises(ConfigurationError, match="must be reachable"):
        prepare(0, models, tmp_path / "base")
