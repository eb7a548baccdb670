"""The trainer ``remote`` at a real server: ``make services`` makes it, else these are skipped."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tinker_server import base_model, is_made, tinker_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not is_made(), reason="make services was not run"),
    pytest.mark.skipif(
        importlib.util.find_spec("tinker") is None, reason="the extra remote is not installed"
    ),
]
# The client's threads end with its process, so each of its uses has one.
LOSSES = Path(__file__).parent / "servers" / "tinker_losses.py"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tinker")
    with tinker_server(folder) as url:
        yield url, base_model(folder)


def test_the_servers_losses_are_ours_beyond_the_clip_too(place):
    url, model = place
    done = subprocess.run(
        [sys.executable, LOSSES, url, model],
        check=False,
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for name, (theirs, ours) in json.loads(done.stdout.splitlines()[-1]).items():
        assert theirs == pytest.approx(ours, abs=1e-4), name
