import re
from importlib.metadata import version
from pathlib import Path

import pytest
from each_row import each_row

import astra_core

ROOT = Path(__file__).parents[2]


@each_row("name", dir(astra_core))
def test_every_public_name_is_there(name):
    assert getattr(astra_core, name).__name__ == name


def test_type_checkers_see_the_same_names():
    source = Path(astra_core.__file__).read_text("utf-8")

    assert dir(astra_core) == sorted(re.findall(r"\b(\w+) as \1\b", source))


def test_the_version_is_the_newest_of_the_changelog_and_the_one_that_is_installed():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    (newest, *_) = re.findall(r"^## \[(\d[^]]*)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)

    assert astra_core.__version__ == newest
    assert astra_core.__version__ == version("astra-red-team")


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'NoSuch'"):
        _ = astra_core.NoSuch
