from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params.models import ModelsConfiguration, ModelSource


@each_row(("given", "read"), [(3, "3"), ("3", "3"), ("champion", "champion")])
def test_a_version_is_a_number_or_an_alias(given, read):
    source = ModelSource.read({"source": "version", "version": given}, where="models.attacker")

    assert read == source.version


@each_row("given", [None, 0, "v 1", True, "", "../x"])
def test_what_is_neither_is_refused(given):
    with pytest.raises(ConfigurationError, match=r"models\.attacker"):
        ModelSource.read({"source": "version", "version": given}, where="models.attacker")


@each_row(
    ("record", "rule"),
    [
        ({"source": "folder"}, "path must name a folder"),
        ({"source": "version"}, "version must be a number or an alias"),
        ({"source": "hub", "repository": "lab/model"}, "a branch can move"),
        ({"revision": "0" * 40}, "source must be 'hub' with revision, got 'builtin'"),
        ({"source": "hub", "repository": "lab/model", "revision": "main"}, "a branch can move"),
    ],
)
def test_a_source_without_what_it_needs_is_refused(record, rule):
    with pytest.raises(ConfigurationError, match=rule):
        ModelSource.read(record, where="models.target")


def test_a_reference_that_is_not_named_is_where_the_attacker_is():
    own = ModelSource(source="folder", path=Path("my/model"))

    assert own == ModelsConfiguration(attacker=own).sources["reference"]
    assert (
        ModelSource()
        == ModelsConfiguration(attacker=own, reference=ModelSource()).sources["reference"]
    )
