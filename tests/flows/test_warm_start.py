import shutil
from pathlib import Path

import pytest
from registry_project import enter_project

from astra_core.errors import ConfigurationError
from flows.warm_start import begin_from
from tasks.params.schema import read_params
from tasks.tracking.store import connect

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """The project's params.yaml beside an empty registry."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return enter_project(tmp_path, monkeypatch)


@pytest.fixture
def registry(project):
    """A registry with two versions, of which the second is champion."""
    client = connect()
    client.create_registered_model("attacker")
    for _ in range(2):
        client.create_model_version("attacker", source=str(project))
    client.set_registered_model_alias("attacker", "champion", "2")
    return client


@pytest.mark.parametrize(("wanted", "number"), [("champion", "2"), (1, "1"), ("1", "1")])
def test_params_yaml_takes_the_attacker_from_the_version(registry, capsys, wanted, number):
    before = read_params()

    assert number == begin_from(wanted, before)
    attacker = read_params().models.attacker
    assert ("version", number) == (attacker.source, attacker.version)
    assert read_params().models.target == before.models.target
    said = capsys.readouterr().out.splitlines()
    assert "params.yaml    models.attacker.source: builtin -> version" in said
    assert f"warm start   from attacker version {number}" == said[-1]


def test_a_champion_that_did_not_change_leaves_the_file_as_it_is(registry):
    begin_from("champion", read_params())
    text = Path("params.yaml").read_bytes()
    begin_from("champion", read_params())

    assert text == Path("params.yaml").read_bytes()


def test_before_the_first_champion_a_run_begins_as_params_yaml_says(project, capsys):
    text = Path("params.yaml").read_bytes()

    assert begin_from("champion", read_params()) is None
    assert text == Path("params.yaml").read_bytes()
    told = "warm start   there is no champion yet: begins from models.attacker, builtin"
    assert [told] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("wanted", ["3", "previous", "no such", ""])
def test_another_version_must_be_there(registry, wanted):
    text = Path("params.yaml").read_bytes()
    with pytest.raises(ConfigurationError, match="must name a version of 'attacker' or an") as told:
        begin_from(wanted, read_params())

    assert 1 == len(str(told.value).splitlines())
    assert text == Path("params.yaml").read_bytes()
