"""A schedule fires by itself: real server, real worker, the settings of our own prefect.yaml.

A Prefect server whose database library is too new looks healthy and never schedules anything, so
this fails on no run at all.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from flows.orchestration.deployment import deploy_all
from flows.servers import services
from flows.servers.access import FILE, auth_string, header

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
TINY = """\
from pathlib import Path
from prefect import flow


@flow(name="tiny")
def tiny():
    with Path("fired.log").open("a") as log:
        log.write("fired\\n")
"""


# As a decision announces itself.
PROMOTED = """\
from flows.orchestration.events import announce_decision
from tasks.promotion.decision import PromotionDecision
announce_decision(PromotionDecision(
    promoted=True, changed=True, reasons=("better",), model_name="attacker",
    candidate_version="7", champion_version="7", previous_version=None, comparison=None,
))
"""
SCHEDULE = {"interval": 10, "anchor_date": "2026-01-01T00:00:00+00:00"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for a tiny flow, with the variables of a server of its own."""
    (tmp_path / "tiny.py").write_text(TINY, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / ".prefect"))
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    monkeypatch.setenv("PREFECT_WORKER_QUERY_SECONDS", "1")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    # Set by the code under test for its own process; here it must not outlive the test.
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "")
    return tmp_path


def deploy_tiny(folder, schedules):
    """Puts the tiny flow under deployments of our prefect.yaml, everything else as it is there."""
    record = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
    tiny = {"entrypoint": "tiny.py:tiny", "parameters": {}}
    record["deployments"] = [
        own | tiny | {"schedules": schedules[own["name"]]}
        for own in record["deployments"]
        if own["name"] in schedules
    ]
    (folder / "prefect.yaml").write_text(yaml.safe_dump(record), encoding="utf-8")


@contextmanager
def served(monkeypatch):
    """Yields the address of a real server with a real worker, and both; all is deployed."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    started = [services.prefect_server(port)]
    services.remember(started)
    try:
        services.wait_until_ready(started[0], "/api/health")
        url = f"{started[0].url}/api"
        monkeypatch.setenv("PREFECT_API_URL", url)
        deploy_all()
        started.append(services.worker(url))
        yield url
    finally:
        services.stop(started)
    assert not any(service.is_alive() for service in started)


def test_a_schedule_fires_by_itself_and_a_promotion_starts_the_reevaluation(folder, monkeypatch):
    deploy_tiny(folder, {"nightly-training": [SCHEDULE], "champion-reevaluation": []})
    with served(monkeypatch) as url:
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", auth_string())
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        subprocess.run([sys.executable, "-c", PROMOTED], check=True, timeout=500)
        begun_by = _begun_by({"SCHEDULE", "AUTOMATION"}, url, timeout_s=500.0)
        listed = _in_a_shell("prefect deployment schedule ls tiny/nightly-training")
        stray = _files_with(auth_string().partition(":")[2], folder)

    assert {"SCHEDULE", "AUTOMATION"} <= begun_by
    assert (folder / "fired.log").read_text().startswith("fired\nfired\n")
    assert (0, "") == (listed.returncode, listed.stderr)
    assert "10.0s" in listed.stdout or "0:00:10" in listed.stdout
    assert [FILE.as_posix()] == stray


def _in_a_shell(command):
    """The command after the line that the operations page tells a person to evaluate."""
    astra = f"{sys.executable} -m flows.cli"
    line = f'eval "$({astra} ui --env)"; {sys.executable} -m {command}'
    environment = {name: os.environ[name] for name in ("PATH", "PREFECT_HOME")}
    return subprocess.run(
        ["bash", "-c", line],
        env={**environment, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def _files_with(secret, folder):
    return [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and secret.encode() in path.read_bytes()
    ]


def _begun_by(wanted, url, *, timeout_s):
    """What the runs that ended well were begun by, once all that is wanted is among it."""
    completed = {"flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
    end, found = time.monotonic() + timeout_s, set()
    while not wanted <= found and time.monotonic() < end:
        time.sleep(1.0)
        runs = _post(f"{url}/flow_runs/filter", completed)
        found = {run["created_by"]["type"] for run in runs if run["created_by"]}
    return found


def _post(url, record):
    request = urllib.request.Request(  # noqa: S310 - our own http address
        url,
        data=json.dumps(record).encode(),
        headers={"content-type": "application/json", **header()},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return json.load(reply)
    except urllib.error.HTTPError:
        return []  # SQLite was busy
