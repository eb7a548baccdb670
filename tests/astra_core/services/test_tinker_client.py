import importlib.util

import pytest

from astra_core.errors import ConfigurationError
from astra_core.services.tinker_client import TinkerService, key_in


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


@pytest.mark.skipif(importlib.util.find_spec("tinker") is None, reason="needs the extra remote")
def test_nothing_is_told_to_the_clients_maker(monkeypatch):
    import os

    monkeypatch.delenv("TINKER_TELEMETRY", raising=False)
    TinkerService("http://127.0.0.1:1", base_model="tiny", rank=1, seed=1)

    assert "0" == os.environ["TINKER_TELEMETRY"]
