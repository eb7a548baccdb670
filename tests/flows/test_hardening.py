import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hardening_world import QUICK, find, make_hardening_world
from prefect import flow
from registry_project import enter_project

from astra_core.errors import ConfigurationError
from astra_core.files import read_json
from flows.hardening import PAGE, _fresh_point, _place_of, _Run, _train_fresh, hardening
from flows.runs.turns import LOCK
from tasks.hardening.pairs import BENIGN, read_pairs
from tasks.params.schema import read_params
from tasks.records.hardening import HARDENING, NOTHING_FOUND

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path, monkeypatch, prefect_server):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    enter_project(tmp_path, monkeypatch)
    make_hardening_world(tmp_path, monkeypatch)
    write_params()
    return tmp_path


def write_params(**system):
    values = QUICK.model_dump(mode="json", exclude_defaults=True)
    values["flow"] = {"retries": 0}
    values["system"] |= system
    Path("params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


def test_rounds_are_measured_registered_and_told_and_more_of_them_go_on(project):
    first = hardening(1, fresh=False)
    written = {path: path.read_bytes() for path in (project / "models/hardened").rglob("*.*")}
    found = hardening(2, fresh=False)

    assert f"(PID {os.getpid()})" in LOCK.read_text()
    assert ["", "1"] == [own.version for own in first.rounds]
    assert first.rounds == found.rounds[:2]
    assert {0: {0}, 1: {0}} == {target: set(cells) for target, cells in first.success.items()}
    # What the old attacker finds where the target is measured is not learned.
    assert (NOTHING_FOUND, 2) == (found.ended, len(found.rounds))
    assert all(path.read_bytes() == own for path, own in written.items())
    assert found.ended == read_json(HARDENING)["ended"]
    assert "version 1" in PAGE.read_text()
    assert "bad" not in PAGE.read_text()


def test_a_rerun_learns_from_what_was_found_since(project):
    hardening(1, fresh=False, versions=False)
    (first,) = (project / "models/hardened").iterdir()
    find(Path("models/base/tiny"), "you are nasty")
    hardening(1, fresh=False, versions=False)
    (second,) = set((project / "models/hardened").iterdir()) - {first}

    learned = [
        [each.said for each in read_pairs(own / "pairs_1.jsonl") if each.source != BENIGN]
        for own in (first, second)
    ]
    assert [3, 4] == list(map(len, learned))
    assert ("you are nasty",) in learned[1]


def test_a_killed_hardening_goes_on_with_its_findings_whatever_was_found_since(project, capsys):
    hardening(1, fresh=False, versions=False)
    (only,) = (project / "models/hardened").iterdir()
    # A kill during the second measurement.
    (only / "ended").unlink()
    (only / "round_1.json").unlink()
    before = (only / "pairs_1.jsonl").read_bytes()
    find(Path("models/base/tiny"), "you are nasty")
    hardening(1, fresh=False, versions=False)

    assert [only] == [*(project / "models/hardened").iterdir()]
    assert before == (only / "pairs_1.jsonl").read_bytes()
    assert (only / "round_1.json").is_file()
    assert f"goes on in {only.relative_to(project)}, with the findings" in capsys.readouterr().out


@flow(validate_parameters=False)
def do(run, value):
    return run._do("a step", lambda: value)


def test_what_decides_a_hardening_must_stay_as_it_is(project):
    params = read_params()
    run = _Run(_place_of(params, (), is_fresh=True), params.hardening, True, False)
    assert 1 == do(run, 1)
    Path("own.py").write_text("def spell(text): return text\n", encoding="utf-8")
    write_params(spelling="own.py:spell")
    with pytest.raises(ConfigurationError, match="must stay as they are while a target is"):
        do(run, 2)
    other = replace(run, place=_place_of(read_params(), (), is_fresh=True))
    assert 3 == do(other, 3)
    Path("own.py").write_text("def spell(text): return text[::-1]\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="code must stay as they are"):
        do(other, 4)


def test_a_kill_after_a_fresh_attacker_was_kept_leaves_no_workspace(project):
    place = _place_of(read_params(), (), is_fresh=True)
    place.attacker(1).mkdir(parents=True)
    place.target(1).mkdir()
    workspace = _fresh_point(1, place).folder
    workspace.mkdir(parents=True)
    _train_fresh(1, place)

    assert not workspace.exists()


def test_without_an_attacker_nothing_begins(project):
    (project / "models/attacker/config.json").unlink()
    with pytest.raises(ConfigurationError, match="must hold the trained attacker, got none"):
        hardening()
