"""The trainer ``vllm`` at a real server: ``make services`` makes it, else these are skipped."""

import json
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
from tinker_server import SHIPPED, free_port
from vllm_server import is_made, kill, vllm_server

pytestmark = [
    pytest.mark.real,
    pytest.mark.wide,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(not is_made(), reason="make services was not run"),
]
TRAINING = Path(__file__).parent / "servers" / "vllm_training.py"


def start(folder, url):
    """One process of a run; it has been told nothing of earlier ones."""
    return subprocess.Popen(
        [sys.executable, TRAINING, folder, url, SHIPPED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(folder, url):
    process = start(folder, url)
    said, errors = process.communicate(timeout=1200)
    assert 0 == process.returncode, errors[-2000:]
    return json.loads(said.splitlines()[-1])


def draws(folder):
    """What is kept of the attacker, by the key of each request."""
    found = {}
    for file in folder.glob("replies/vllm-*.sqlite"):
        # A file that was made this moment has no table yet.
        with closing(sqlite3.connect(file)) as base, suppress(sqlite3.OperationalError):
            found |= dict(base.execute("SELECT key, text FROM replies").fetchall())
    return found


def test_an_attacker_and_a_target_are_at_vllm_which_is_killed_in_mid_rollout(tmp_path):
    port = free_port()
    with vllm_server(tmp_path, port) as (url, server):
        whole = finished(tmp_path / "whole", url)
        num_draws = len(draws(tmp_path / "whole"))
        # The base alone: a run that has ended takes its adapters away.
        assert 1 == len(httpx.get(f"{url}/models").json()["data"])

        run = start(tmp_path / "cut", url)
        # In the second level of the first trees: what the attacker says, not the target.
        while run.poll() is None and 3 * len(draws(tmp_path / "cut")) < num_draws:
            time.sleep(0.05)
        kill(server)
        _, errors = run.communicate(timeout=300)
    assert 1 == run.returncode
    [line] = [each for each in errors.splitlines() if "trainer 'vllm'" in each]
    assert "cannot be reached" in line
    assert line.endswith("so start the server and run again")
    before = draws(tmp_path / "cut")
    with vllm_server(tmp_path, port) as (url, _):
        resumed = finished(tmp_path / "cut", url)

    after = draws(tmp_path / "cut")
    assert before == {key: text for key, text in after.items() if key in before}
    # Batches of the server are not the same twice, and round in other ways.
    for once, again in zip(whole["evaluations"], resumed["evaluations"], strict=True):
        for name in ("eval/score_mean", "eval/kl_nats"):
            assert once[name] == pytest.approx(again[name], abs=0.05), name
    # Equal weights in both engines: nothing but rounding is corrected.
    assert [1.0] * len(whole["ratios"]) == pytest.approx(whole["ratios"], abs=1e-3)
