import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
# A run at a server that ends, with a stage under way that it must not leave behind.
RUN = """
import os, sys, threading, time
from flows.servers import services
from flows.servers.processes import run_group
from flows.orchestration.watch import watch
server = services.start("server", sys.argv[2:], {}, url=sys.argv[1])
watch(server)
print("begun", flush=True)
stage = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
run_group([sys.executable, "-c", stage], environment=os.environ)
print("Prefect would now try for minutes", flush=True)
time.sleep(300)
"""


def _run(folder, url, *server):
    command = [sys.executable, "-c", RUN, url, *server]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
    )


def test_a_run_whose_server_ends_says_so_in_a_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = _run(tmp_path, f"http://127.0.0.1:{port}", "sleep", "2")

    lines = done.stderr.splitlines()
    assert 1 == done.returncode
    assert 1 == len(lines)
    assert lines[0].startswith("error: the Prefect server of this run must keep running, but ended")
    assert lines[0].endswith("see .astra/logs/server.log")
    begun, stage = done.stdout.splitlines()
    assert "begun" == begun
    assert not psutil.pid_exists(int(stage))


def test_a_server_that_nobody_can_reach_is_gone_too(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = _run(tmp_path, f"http://127.0.0.1:{port}", "sleep", "30")

    assert 1 == done.returncode
    assert 1 == len(done.stderr.splitlines())
