"""``astra tune-lr`` as a person starts it, beside models and prompts as the stages leave them."""

import json

import pytest
import yaml
from small_world import PARAMS, write_world

from flows.cli import run_command


@pytest.fixture
def world(tmp_path, monkeypatch, restored):
    write_world(tmp_path)
    record = PARAMS.model_dump(mode="json")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(record), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.real
def test_the_rate_is_saved_only_if_that_is_asked_for(world, capfd, monkeypatch):
    monkeypatch.setattr("flows.cli.project_folder", lambda _: world)
    written = (world / "params.yaml").read_text()
    arguments = ["tune-lr", "--lowest", "1e-5", "--highest", "2e-5", "--count", "2"]

    assert 0 == run_command(arguments)
    assert "nothing was changed" in capfd.readouterr().out
    assert written == (world / "params.yaml").read_text()
    assert 0 == run_command([*arguments, "--save", "--json"])
    told = json.loads(capfd.readouterr().out)
    assert [0.0, 1e-5, 2e-5] == [tried["rate"] for tried in told["tried"]]
    assert 2e-5 == told["suggested"]
    # PyYAML reads 1e-4 as a text, unlike YAML 1.2.
    assert 2e-5 == float(yaml.safe_load((world / "params.yaml").read_text())["training"]["lr"])


def test_a_wrong_range_is_one_line(world, capsys, monkeypatch):
    monkeypatch.setattr("flows.cli.project_folder", lambda _: world)

    assert 2 == run_command(["tune-lr", "--lowest", "1", "--highest", "0.1"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "rates must go up" in line
