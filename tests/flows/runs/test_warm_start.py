import shutil
from pathlib import Path

import pytest
from registry_project import enter_project

from astra_core.errors import ConfigurationError
from flows.runs.warm_start import warm_start
from flows.settings import planned_params
from tasks.params.schema import read_params
from tasks.tracking.store import connect

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.real


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
def test_the_attacker_is_taken_from_the_version(registry, wanted, number):
    assignments, line = warm_start(wanted, read_params())
    _, params = planned_params(assignments)

    assert ("version", number) == (params.models.attacker.source, params.models.attacker.version)
    assert f"warm start   from attacker version {number}" == line


def test_before_the_first_champion_a_run_begins_as_params_yaml_says(project):
    told = "warm start   there is no champion yet: begins from models.attacker, builtin"

    assert ([], told) == warm_start("champion", read_params())


@pytest.mark.parametrize("wanted", ["3", "previous", "no such", ""])
def test_another_version_must_be_there(registry, wanted):
    with pytest.raises(ConfigurationError, match="must name a version of 'attacker' or an") as told:
        warm_start(wanted, read_params())

    assert 1 == len(str(told.value).splitlines())
