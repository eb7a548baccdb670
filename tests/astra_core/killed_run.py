"""A run at an endpoint, in a process of its own, that is killed while calls are under way."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from hostile_server import well

HERE = Path(__file__).parent
LONG_S = 600.0  # of a busy machine: to start a process
RUN = """
import sys
sys.path[:0] = sys.argv[3:]
from asking import ask, endpoint
ask(endpoint(sys.argv[1], sys.argv[2], name="t", concurrency=4))
"""


def kill_at(server, folder, number):
    """Starts a run, and kills it while four requests are under way, of which this is the first."""
    reached, may_go = threading.Event(), threading.Event()

    def behave(handler, body, count):
        if count >= number:
            reached.set()
            may_go.wait(LONG_S)
        well(handler, body, count)

    server.behave = behave
    program = [sys.executable, "-c", RUN, server.url, str(folder), str(HERE)]
    run = subprocess.Popen(program, start_new_session=True)
    assert reached.wait(LONG_S)
    while server.open < 4:  # all that may be asked at once
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait(LONG_S)
    may_go.set()
    server.behave = well
