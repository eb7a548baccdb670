import json

import pytest
import yaml
from hardening_world import QUICK, make_hardening_world

from tasks.hardening.step import NAME, main
from tasks.pipeline import failures


@pytest.fixture
def place(tmp_path, monkeypatch):
    own = make_hardening_world(tmp_path, monkeypatch)
    values = QUICK.model_dump(mode="json", exclude_defaults=True)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return own


def test_a_step_says_what_it_has_done(place, capsys):
    assert 0 == main(["train", "1", str(place.folder)])
    assert 0 == main(["measure", "0", str(place.folder)])
    trained, measured = capsys.readouterr().out.splitlines()[-2:]

    assert f"hardening    {place.target(1)} learned from 6 pairs" == trained
    assert measured.startswith("hardening    target 0: attack success ")
    assert 3 == measured.count("[")


def test_a_mistake_is_one_line_that_the_flow_finds(place, capsys):
    (place.folder.parents[2] / "models/base/manifest.json").unlink()
    assert 2 == main(["measure", "0", str(place.folder)])
    (line,) = [own for own in capsys.readouterr().err.splitlines() if own.startswith("error")]

    assert "manifest.json must exist" in line
    assert "manifest.json must exist" in failures.read_failure(NAME).message
    assert json.dumps(line).isascii()
