import base64
import subprocess
import sys

import pytest

from flows.servers.access import FILE, _write_once, auth_string, header, login_link, new_auth_string


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PREFECT_API_AUTH_STRING", raising=False)


def test_the_string_is_made_once_for_the_owner_alone():
    first = auth_string()

    assert first == auth_string()
    assert 0o600 == FILE.stat().st_mode & 0o777
    assert 0o700 == FILE.parent.stat().st_mode & 0o777
    assert [FILE.name] == [path.name for path in FILE.parent.iterdir()]


def test_what_is_written_was_never_for_others_to_read(tmp_path):
    _write_once("astra:mine", tmp_path / "auth")

    assert 0o600 == (tmp_path / "auth").stat().st_mode & 0o777


def test_a_file_that_others_could_read_is_closed():
    FILE.parent.mkdir()
    FILE.write_text("astra:mine\n", encoding="utf-8")
    FILE.chmod(0o644)

    assert "astra:mine" == auth_string()
    assert 0o600 == FILE.stat().st_mode & 0o777


@pytest.mark.real
def test_processes_that_ask_at_once_get_one_string():
    command = [
        sys.executable,
        "-c",
        "from flows.servers.access import auth_string; print(auth_string())",
    ]
    asked = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    strings = {process.communicate()[0] for process in asked}

    assert {f"{auth_string()}\n"} == strings


def test_no_two_strings_are_equal_and_each_fits_an_address():
    strings = {new_auth_string() for _ in range(100)}

    assert 100 == len(strings)
    for string in strings:
        user, password = string.split(":")
        assert "astra" == user
        assert len(password) >= 43  # 32 bytes
        assert password.replace("-", "").replace("_", "").isalnum()


def test_a_request_carries_the_string_of_the_environment(monkeypatch):
    assert {} == header()
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "astra:mine")
    scheme, token = header()["Authorization"].split()

    assert ("Basic", b"astra:mine") == (scheme, base64.b64decode(token))


def test_the_link_keeps_the_string_behind_the_hash():
    place, string = login_link("http://127.0.0.1:4200").split("#")

    assert "http://127.0.0.1:4200/astra-login" == place
    assert auth_string() == string
