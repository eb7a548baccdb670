import os
import subprocess
import sys

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from flows.servers.access import LOGIN
from flows.servers.guard import add_login
from flows.servers.prefect_server import LOGIN_PAGE, main


def test_the_login_page_names_no_string_and_is_not_kept():
    app = Starlette()
    add_login(app, LOGIN_PAGE)
    reply = TestClient(app).get(LOGIN)

    assert "no-store" == reply.headers["cache-control"]
    assert (
        b'localStorage.setItem("prefect-password", btoa(location.hash.slice(1)))' in reply.content
    )


@pytest.mark.real
def test_a_server_that_nobody_wants_any_more_does_not_start():
    """Its lifeline ends while Prefect is still being imported."""
    listener, child_end = os.pipe()
    os.close(child_end)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "flows.servers.prefect_server",
            "--port",
            "0",
            "--lifeline",
            "--lasting",
        ],
        stdin=listener,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    os.close(listener)

    assert (0, "") == (done.returncode, done.stderr)
    assert callable(main)
