"""DVC and the values of one run: what its lock says, and what it finds changed afterwards."""

import sys
from pathlib import Path

import pytest
import yaml

from tasks.params.overlay import laid_over
from tasks.pipeline.reproduction import changes, is_current, reproduce

PIPELINE = """\
stages:
  toy:
    cmd: {python} toy.py
    deps: [toy.py]
    params: [seed, own.lr]
    outs: [out.txt]
"""
SCRIPT = """\
import json, os, pathlib
pathlib.Path("out.txt").write_text(os.environ.get("ASTRA_OVERRIDES", "none"))
"""


@pytest.fixture
def toy(dvc_project):
    """A stage that reads two keys of params.yaml and writes which overrides it got."""
    Path("params.yaml").write_text("seed: 0\nown: {lr: 1.0}\n", "utf-8")
    Path("dvc.yaml").write_text(PIPELINE.format(python=sys.executable), "utf-8")
    Path("toy.py").write_text(SCRIPT, "utf-8")
    return dvc_project


def locked():
    return yaml.safe_load(Path("dvc.lock").read_text("utf-8"))["stages"]["toy"]["params"]


def test_dvc_locks_what_the_run_had_and_tells_that_params_yaml_differs(toy, capsys):
    before = Path("params.yaml").read_bytes()
    assert 0 == reproduce("toy")
    with laid_over({"own.lr": 0.5}):
        assert not is_current("toy")
        assert 0 == reproduce("toy")
        assert is_current("toy")

    assert {"params.yaml": {"seed": 0, "own.lr": 0.5}} == locked()
    assert '{"own.lr": 0.5}' == Path("out.txt").read_text()
    assert {"toy": ["params.yaml modified"]} == {
        name: ["params.yaml modified" for why in reasons if "params.yaml" in why or "own.lr" in why]
        for name, reasons in changes().items()
    }
    assert before == Path("params.yaml").read_bytes()
    # Back again: out of DVC's cache, without running.
    capsys.readouterr()
    assert 0 == reproduce("toy")
    assert "restored from DVC's cache" in capsys.readouterr().out
    assert {} == changes()
    assert "none" == Path("out.txt").read_text()
