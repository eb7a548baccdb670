import os

import pytest

from flows.servers.environment import quiet_run, set_flow_environment
from flows.servers.services import ServiceError


@pytest.fixture(autouse=True)
def restored(tmp_path, monkeypatch):
    """The environment as it was, afterwards."""
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def test_prefects_home_is_in_the_project_and_nothing_is_sent(tmp_path):
    for name in ("PREFECT_HOME", "DO_NOT_TRACK"):
        os.environ.pop(name, None)
    set_flow_environment()

    assert str(tmp_path / ".prefect") == os.environ["PREFECT_HOME"]
    assert "true" == os.environ["DO_NOT_TRACK"]


def test_what_a_person_has_set_is_left_alone():
    os.environ["PREFECT_HOME"] = "mine"
    set_flow_environment()

    assert "mine" == os.environ["PREFECT_HOME"]


def test_a_run_uses_the_server_that_is_named_and_sends_no_heartbeats(prefect_server):
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY

    os.environ["PREFECT_API_URL"] = PREFECT_API_URL.value()
    with quiet_run():
        assert PREFECT_FLOWS_HEARTBEAT_FREQUENCY.value() is None
        assert "CRITICAL" == os.environ["PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"]


def test_a_named_server_that_does_not_answer_is_reported_before_anything_runs():
    os.environ["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    with pytest.raises(ServiceError, match=r"at http://127\.0\.0\.1:9/api"), quiet_run():
        pytest.fail("a run was begun")
