import shutil
from pathlib import Path

import pytest
from registry_project import enter_project

from astra_core.errors import ConfigurationError
from flows.runs.requests import RunRequest
from flows.runs.warm_start import begin_from
from tasks.params.overlay import laid_over
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


ASKED = RunRequest((("training.lr", 0.1),), end="training")


@pytest.mark.parametrize(("wanted", "number"), [("champion", "2"), (1, "1"), ("1", "1")])
def test_the_run_takes_the_attacker_from_the_version(registry, capsys, wanted, number):
    text = Path("params.yaml").read_bytes()
    request = begin_from(wanted, ASKED)
    with laid_over(request.values):
        params = read_params()

    assert ("version", number) == (params.models.attacker.source, params.models.attacker.version)
    assert (0.1, "training") == (params.training.lr, request.end)
    assert text == Path("params.yaml").read_bytes()
    assert [f"warm start   from attacker version {number}"] == capsys.readouterr().out.splitlines()


def test_before_the_first_champion_a_run_begins_as_params_yaml_says(project, capsys):
    assert ASKED == begin_from("champion", ASKED)
    told = "warm start   there is no champion yet: begins from models.attacker, builtin"
    assert [told] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("wanted", ["3", "previous", "no such", ""])
def test_another_version_must_be_there(registry, wanted):
    with pytest.raises(ConfigurationError, match="must name a version of 'attacker' or an") as told:
        begin_from(wanted, ASKED)

    assert 1 == len(str(told.value).splitlines())
