import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from astra_parts.services.tinker_client import TinkerService, key_in

ROOT = Path(__file__).parents[3]
SILENT = ROOT / "tests" / "end_to_end" / "servers" / "silent_service.py"
needs_client = pytest.mark.skipif(
    importlib.util.find_spec("tinker") is None, reason="needs the extra remote"
)


def test_without_the_package_it_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("astra_core.errors.packages.find_spec", lambda _: None)

    with pytest.raises(ConfigurationError, match=r"install it with .*\[remote\]"):
        TinkerService("http://127.0.0.1:1", base_model="tiny", rank=1, seed=1)


def test_a_named_key_must_be_there(monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", " secret ")
    assert "secret" == key_in("SERVICE_KEY")
    assert key_in(None) is None
    monkeypatch.delenv("SERVICE_KEY")

    with pytest.raises(ConfigurationError, match="variable SERVICE_KEY must hold the key"):
        key_in("SERVICE_KEY")


@needs_client
def test_nothing_is_reported_to_the_clients_maker(monkeypatch):
    import os

    monkeypatch.delenv("TINKER_TELEMETRY", raising=False)
    TinkerService("http://127.0.0.1:1", base_model="tiny", rank=1, seed=1)

    assert "0" == os.environ["TINKER_TELEMETRY"]


def waits(kind):
    """How each wait for a service ended that never answers."""
    done = subprocess.run(
        [sys.executable, SILENT, kind], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@needs_client
@pytest.mark.real
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("silent", {"begin": "connect"}),
        (
            "busy",
            {
                "begin": "create the model",
                "go_on_from": "load the saved state",
                "update": "train",
                "save": "save",
                "publish": "publish",
                "draw": "sample",
                "score": "score",
                "download": "download",
            },
        ),
    ],
)
def test_every_wait_ends_within_the_limit_in_a_line_and_leaves_nothing_going_on(kind, words):
    found = waits(kind)

    assert list(words) == list(found)
    for call, (took, said, tasks_left) in found.items():
        # Several passes, draws and scores are asked at once: a limit of 0.5 s for each is 2.5 s.
        assert 0.5 <= took < 2.4, call
        assert 0 == tasks_left, call
        for line in said:
            assert line.startswith(
                f"trainer 'remote': the service must {words[call]}, got no answer within 0.5 s;"
            )
            assert "\n" not in line


@needs_client
@pytest.mark.real
def test_an_answer_without_an_end_is_one_line():
    ((_, said, tasks_left),) = waits("endless").values()
    reason = "'StreamError: an answer of more than 67108864 bytes'"

    assert [f"trainer 'remote': the service must connect, got {reason}"] == said
    assert 0 == tasks_left
