import shutil

import pytest
from each_row import each_row

from astra_core.files import read_json
from astra_core.models.pretrained import weights_digest
from tasks.builtin.language_model import LanguageModelConfiguration
from tasks.builtin.shipped import (
    FOLDER,
    PACKAGE,
    RECIPE,
    copy_model,
    keep_model,
    recipe_digest,
    shipped_model,
)

TINY = LanguageModelConfiguration(
    num_quarrels=20,
    num_dialogues=20,
    vocab_size=300,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    intermediate_size=24,
)


@pytest.fixture
def package(tmp_path):
    copy = tmp_path / "builtin"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns(FOLDER, "__pycache__"))
    return copy


def test_the_shipped_model_is_that_of_the_default_and_as_it_was_written(tmp_path):
    shipped = shipped_model(LanguageModelConfiguration(), seed=0)

    # Where this fails: python -m tasks.builtin.shipped
    assert PACKAGE / FOLDER == shipped
    copy_model(shipped, tmp_path / "copy")
    assert read_json(shipped / RECIPE)["weights"] == weights_digest(tmp_path / "copy")


@each_row("change", [{"num_dialogues": 4999}, {"lr": 1e-3}, {"hidden_size": 64}])
def test_another_setting_or_seed_is_another_recipe(change):
    default = LanguageModelConfiguration()

    assert shipped_model(default.model_copy(update=change), seed=0) is None
    assert shipped_model(default, seed=1) is None


@pytest.mark.parametrize("name", ["language_model.py", "dialogue.py", "words.py", "lines.py"])
def test_other_code_is_another_recipe(package, name):
    before = recipe_digest(TINY, seed=0, package=package)
    with (package / name).open("a") as file:
        file.write("# changed\n")

    assert before == recipe_digest(TINY, seed=0)
    assert before != recipe_digest(TINY, seed=0, package=package)


@pytest.mark.real
def test_a_kept_model_is_found_by_its_recipe_and_copied_without_it(package, tmp_path):
    assert shipped_model(TINY, seed=3, package=package) is None

    folder = keep_model(TINY, seed=3, package=package)
    copy_model(folder, tmp_path / "copy")
    names = {path.name for path in folder.iterdir()}

    assert folder == shipped_model(TINY, seed=3, package=package)
    assert names - {RECIPE} == {path.name for path in (tmp_path / "copy").iterdir()}
    assert "model.safetensors" in names
    for path in (tmp_path / "copy").iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
