import json
from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.records.models import (
    Manifest,
    ModelEntry,
    Parent,
    read_manifest,
    read_model_paths,
    write_manifest,
)

INSIDE = ModelEntry("builtin", is_outside=False, digest="d1" * 32, source="builtin")
OUTSIDE = ModelEntry(
    "/models/x", is_outside=True, digest="d2" * 32, source="hub", revision="0" * 40
)
ENTRIES = {"attacker": INSIDE, "target": OUTSIDE, "reference": INSIDE}
WRITTEN = """{
  "attacker": {
    "digest": "%s",
    "is_outside": false,
    "path": "builtin",
    "revision": null,
    "source": "builtin"
  },
"""


def test_a_manifest_survives_its_file_and_has_the_bytes_it_had(tmp_path):
    write_manifest(ENTRIES, tmp_path)

    assert Manifest(**ENTRIES) == read_manifest(tmp_path)
    assert (tmp_path / "manifest.json").read_text().startswith(WRITTEN % ("d1" * 32))


def test_a_parent_survives_the_manifest(tmp_path):
    parent = Parent("d1" * 32, "key", "attacker", "3", "champion", "ab" * 16)
    entries = ENTRIES | {"attacker": replace(INSIDE, source="version", parent=parent)}
    write_manifest(entries, tmp_path)

    assert Manifest(**entries) == read_manifest(tmp_path)
    assert "attacker version 3" == parent.words()
    known = {"astra.parent": "attacker d1d1d1d1d1d1", "astra.parent_digest": "d1" * 32}
    assert known == Parent("d1" * 32).tags()


def test_the_digests_are_those_of_the_roles():
    found = Manifest(**ENTRIES).digests()

    assert {"attacker": "d1" * 32, "target": "d2" * 32, "reference": "d1" * 32} == found


def test_a_target_without_weights_is_no_entry(tmp_path):
    entries = dict.fromkeys(("attacker", "reference"), INSIDE)
    write_manifest(entries, tmp_path)
    (tmp_path / "builtin").mkdir()
    (tmp_path / "builtin" / "config.json").write_text("{}")

    assert read_manifest(tmp_path).target is None
    assert {"attacker", "reference"} == set(read_model_paths(tmp_path))
    assert {"attacker", "reference"} == set(read_manifest(tmp_path).digests())


def test_a_missing_manifest_or_model_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigurationError, match=r"got no such file; run the models stage"):
        read_model_paths(tmp_path)
    write_manifest(ENTRIES, tmp_path)
    with pytest.raises(ConfigurationError, match="attacker's folder must hold a model"):
        read_model_paths(tmp_path)


@each_row(
    ("change", "words"),
    [
        ({"reference": None}, "no usable reference"),
        ({"target": {"path": "x", "is_outside": True}}, "no usable target.digest"),
        ({"reference": {"path": 3, "is_outside": True, "digest": ""}}, "no usable reference.path"),
    ],
)
def test_an_old_or_damaged_manifest_is_one_clear_line(tmp_path, change, words):
    write_manifest(ENTRIES, tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(ConfigurationError, match=f"must name the models, got {words}; run the mod"):
        read_manifest(tmp_path)
