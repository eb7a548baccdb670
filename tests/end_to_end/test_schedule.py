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
from pathlib import Path

import pytest
import yaml

from flows.orchestration.deployment import deploy_all
from flows.servers import services
from flows.servers.access import FILE, auth_string, header

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TINY = """\
from pathlib import Path
from prefect import flow


@flow(name="tiny")
def tiny():
    with Path("fired.log").open("a") as log:
        log.write("fired\\n")
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a tiny flow under the first deployment of prefect.yaml, every ten seconds."""
    record = yaml.safe_load((ROOT / "prefect.yaml").read_text("utf-8"))
    schedule = {"interval": 10, "anchor_date": "2026-01-01T00:00:00+00:00"}
    tiny = {"entrypoint": "tiny.py:tiny", "parameters": {}, "schedules": [schedule]}
    record["deployments"] = [record["deployments"][0] | tiny]
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(record), encoding="utf-8")
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


def test_a_schedule_fires_by_itself(project, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    started = [services.prefect_server(port)]
    services.remember(started)
    try:
        services.wait_until_ready(started[0], "/api/health")
        url = f"{started[0].url}/api"
        monkeypatch.setenv("PREFECT_API_URL", url)
        lines = deploy_all()
        started.append(services.worker(url))
        run = _first_completed(url, timeout_s=120.0)
        listed = _in_a_shell("prefect deployment schedule ls tiny/nightly-training")
        stray = _files_with(auth_string().partition(":")[2], project)
    finally:
        services.stop(started)

    assert lines[0].startswith("nightly-training")
    assert run is not None, "no scheduled run completed"
    assert "SCHEDULE" == run["created_by"]["type"]
    assert (project / "fired.log").read_text().startswith("fired\n")
    assert not any(service.is_alive() for service in started)
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


def _first_completed(url, *, timeout_s):
    wanted = {"flow_runs": {"state": {"type": {"any_": ["COMPLETED"]}}}}
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        for run in _post(f"{url}/flow_runs/filter", wanted):
            if run["created_by"]:
                return run
        time.sleep(1.0)
    return None


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
