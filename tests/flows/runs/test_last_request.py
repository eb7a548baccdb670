import pytest

from astra_core.errors import ConfigurationError
from flows.runs.last_request import (
    FILE,
    forget_request,
    note_request,
    noted,
    request_to_resume,
)
from flows.runs.requests import RunRequest


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_what_did_not_end_is_asked_again_without_force():
    note_request(RunRequest(end="training", force=True))

    assert RunRequest(end="training") == request_to_resume()


def test_what_ended_or_is_damaged_is_not():
    note_request(RunRequest())
    forget_request()
    forget_request()
    with pytest.raises(ConfigurationError, match="must find a run that did not end, got none"):
        request_to_resume()
    FILE.write_text("{", "utf-8")
    with pytest.raises(ConfigurationError, match="got a damaged file"):
        request_to_resume()


def test_a_run_is_noted_while_it_is_not_done():
    with pytest.raises(RuntimeError), noted(RunRequest(end="training")):
        raise RuntimeError
    assert RunRequest(end="training") == request_to_resume()

    with noted(RunRequest()):
        assert FILE.is_file()
    assert not FILE.exists()
