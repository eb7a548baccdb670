import re
from pathlib import Path

import pytest
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_parts.testing import tiny_language_model
from tasks.figures.crossing import BASE, base_with_target
from tasks.records.models import read_manifest, read_model_paths


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    tiny_language_model(seed=8).save("other")
    tiny_language_model(seed=11).save("mine")
    return tmp_path


def test_another_target_leaves_attacker_and_reference_as_they_are(world):
    own, other = (
        read_model_paths(base) for base in (BASE, base_with_target(Path("other"), PARAMS))
    )
    before = read_manifest(BASE).digests()
    after = read_manifest(base_with_target(Path("other"), PARAMS)).digests()

    assert world / "other" == other["target"]
    assert {(world / own[role]) for role in ("attacker", "reference")} == {
        other[role] for role in ("attacker", "reference")
    }
    assert before["attacker"] == after["attacker"] == after["reference"]
    assert before["target"] != after["target"]


def test_what_is_no_model_or_has_no_weights_is_told(world):
    with pytest.raises(ConfigurationError, match="gone must be a Hugging Face folder, got no such"):
        base_with_target(Path("gone"), PARAMS)
    rules = PARAMS.system.model_copy(update={"target": Choice(name="scripted")})
    with pytest.raises(ConfigurationError, match=re.escape("needs a system.target with weights")):
        base_with_target(Path("other"), PARAMS.model_copy(update={"system": rules}))
