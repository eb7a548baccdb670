import subprocess
import sys

import pytest

pytestmark = pytest.mark.real

RUN = "from flows.runs.turns import in_turn\nwith in_turn(): print('begun', flush=True); input()"


def _started(folder, *words):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", RUN, *words], cwd=folder, **pipes)


def test_a_second_run_waits_for_the_first_and_says_for_which(tmp_path):
    first = _started(tmp_path, "run", "--force")
    begun = first.stdout.readline()
    second = _started(tmp_path)
    told = second.stdout.readline()
    first.communicate("\n", timeout=240)
    rest, _ = second.communicate("\n", timeout=240)

    assert ["begun\n", "begun\n"] == [begun, rest]
    assert f"run          waits for another run: (PID {first.pid}): -c run --force\n" == told


def test_a_killed_run_leaves_the_turn_to_the_next(tmp_path):
    first = _started(tmp_path)
    first.stdout.readline()
    first.kill()
    first.communicate()

    assert ("begun\n", None) == _started(tmp_path).communicate("\n", timeout=240)
