import shutil
from pathlib import Path

import pytest
import yaml

from flows.orchestration.deployment import deploy_all, run_worker
from flows.servers.services import WORK_POOL, ServiceError

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    shutil.copy(ROOT / "prefect.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@pytest.mark.parametrize("command", [deploy_all, run_worker])
def test_without_a_server_nothing_is_tried(command):
    with pytest.raises(ServiceError, match="start one with 'astra ui'"):
        command()


def test_every_deployment_bounds_the_backlog_and_names_no_machine():
    record = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
    entries = record["deployments"]

    assert ["nightly-training", "champion-reevaluation"] == [entry["name"] for entry in entries]
    for entry in entries:
        assert {"limit": 1, "collision_strategy": "CANCEL_NEW"} == entry["concurrency_limit"]
        assert WORK_POOL == entry["work_pool"]["name"]
        module, function = entry["entrypoint"].split(":")
        assert f"def {function}(" in (ROOT / module).read_text("utf-8")
    step = record["pull"][0]["prefect.deployments.steps.set_working_directory"]
    assert "{{ $PWD }}" == step["directory"]
