import inspect
import shutil
import socket
from pathlib import Path

import pytest
import yaml
from each_row import each_row
from prefect.exceptions import ParameterTypeError
from prefect.utilities.callables import parameter_schema

from flows.orchestration.deployment import deploy_all, has_pool, run_worker
from flows.reevaluation import champion_reevaluation
from flows.runs.requests import STEPS
from flows.servers.services import WORK_POOL, ServiceError
from flows.sweeps.flow import sweep
from flows.training import red_team_training

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    shutil.copy(ROOT / "prefect.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@each_row("command", [deploy_all, run_worker])
def test_without_a_server_nothing_is_tried(command):
    with pytest.raises(ServiceError, match="start one with 'astra ui'"):
        command()


def test_a_server_that_has_gone_is_named():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{found.getsockname()[1]}/api"

    with pytest.raises(ServiceError, match=f"the Prefect server must answer {url}/work_pools"):
        has_pool(url)


def test_the_parameters_of_every_deployment_are_those_of_its_flow():
    record = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
    flows = {
        "nightly-training": red_team_training,
        "champion-reevaluation": champion_reevaluation,
        "sweep": sweep,
    }
    for entry in record["deployments"]:
        assert set(entry["parameters"]) <= set(inspect.signature(flows[entry["name"]]).parameters)
    nightly = record["deployments"][0]["parameters"]

    assert {"force": False, "seed": "date", "warm_start": None, "overrides": {}} == nightly
    for given in (None, "champion", 3):
        checked = red_team_training.validate_parameters({**nightly, "warm_start": given})
        assert given == checked["warm_start"]


def test_the_form_of_a_deployment_names_the_steps_and_refuses_a_wrong_type():
    schema = parameter_schema(red_team_training).model_dump()["properties"]

    assert {"force", "warm_start", "overrides", "only", "start", "end", "seed"} == set(schema)
    for name in ("only", "start", "end"):
        (choice,) = [each for each in schema[name]["anyOf"] if "enum" in each]
        assert list(STEPS) == choice["enum"]
    for wrong in ({"seed": -1}, {"seed": "tomorrow"}, {"overrides": [1]}, {"force": "perhaps"}):
        with pytest.raises(ParameterTypeError):
            red_team_training.validate_parameters(wrong)


def test_every_deployment_bounds_the_backlog_and_names_no_machine():
    record = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
    entries = record["deployments"]

    names = [entry["name"] for entry in entries]
    assert ["nightly-training", "champion-reevaluation", "sweep"] == names
    for entry in entries:
        assert {"limit": 1, "collision_strategy": "CANCEL_NEW"} == entry["concurrency_limit"]
        assert WORK_POOL == entry["work_pool"]["name"]
        module, function = entry["entrypoint"].split(":")
        assert f"def {function}(" in (ROOT / module).read_text("utf-8")
    step = record["pull"][0]["prefect.deployments.steps.set_working_directory"]
    assert "{{ $PWD }}" == step["directory"]
