"""One Prefect server for all tests of the flows, and toy projects with real DVC and processes."""

import os
import textwrap
from pathlib import Path

import pytest

DVC_YAML = """\
stages:
  toy:
    cmd: '"$ASTRA_PYTHON" toy.py'
    deps: [toy.py]
    outs: [out.txt]
"""

HERE = Path(__file__).parent
REAL = {"prefect_server", "toy"}


def pytest_collection_modifyitems(items):
    """What has the server or a toy project with DVC runs on the real parts."""
    for item in items:
        if not REAL.isdisjoint(item.fixturenames) and HERE in item.path.parents:
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory):
    """Prefect's server for the session; without heartbeats a flow takes a tenth of the time."""
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with (
        prefect_test_harness(server_startup_timeout=400),
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
    ):
        yield


@pytest.fixture
def in_flow(prefect_server):
    """What a function returns when a flow calls it."""
    from prefect import flow

    def call(function, *arguments, **options):
        @flow(name="test", persist_result=False)
        def test():
            return [function(*arguments, **options)]

        return test()[0]

    return call


@pytest.fixture
def toy(dvc_project):
    """Makes the working folder a DVC project whose one stage runs the script it is given."""
    (dvc_project / "dvc.yaml").write_text(DVC_YAML, encoding="utf-8")

    def write(script):
        text = textwrap.dedent(script)
        (dvc_project / "toy.py").write_text(text, encoding="utf-8")
        return dvc_project

    return write
