import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from shard_sums import Sums, bar_into

from astra_core.errors import DataError, LostProcessError
from astra_core.executor import shown_by
from astra_parts.executors.processes import ProcessesExecutor
from astra_parts.testing import check_executor

ROOT = Path(__file__).parents[3]


@pytest.fixture
def two():
    executor = ProcessesExecutor(ProcessesExecutor.Options(max_losses=2, straggler_factor=2.0))
    yield executor
    executor.close()


def numbers(found):
    return [number for number, _ in found]


@pytest.mark.real
def test_it_keeps_the_contract():
    check_executor("processes", num_workers=2)


@pytest.mark.real
def test_a_worker_that_is_killed_costs_its_shard_alone(two, tmp_path):
    shards = [(number, "die" if number == 2 else "") for number in range(6)]

    assert [0, 1, 2, 3, 4, 5] == numbers(two.run(Sums(tmp_path), shards))
    assert 1 == two.ledger.num_lost
    assert 2 == len(two._workers)


@pytest.mark.real
def test_a_shard_that_kills_every_worker_is_an_error(two, tmp_path):
    with pytest.raises(LostProcessError, match=r"got 2 lost with shard 0 \(ended by SIGKILL\)"):
        two.run(Sums(tmp_path), [(0, "die always")])


@pytest.mark.real
def test_a_straggler_is_done_again_by_an_idle_worker(two, tmp_path):
    started = time.monotonic()
    shards = [(0, "wait"), (1, ""), (2, ""), (3, "")]

    assert [0, 1, 2, 3] == numbers(two.run(Sums(tmp_path), shards))
    assert 1 == two.ledger.num_issued_again
    assert time.monotonic() - started < 50.0
    # The one that still waits takes no part, and its result, if it ever comes, none either.
    assert [7, 8] == numbers(two.run(Sums(tmp_path), [(7, ""), (8, "")]))


@pytest.mark.real
def test_errors_of_the_work_are_raised_here(two, tmp_path):
    with pytest.raises(DataError, match="must be good"):
        two.run(Sums(tmp_path), [(0, ""), (1, "fail")])
    with pytest.raises(RuntimeError, match="a worker failed, got ZeroDivisionError"):
        two.run(Sums(tmp_path), [(0, "break")])


@pytest.mark.real
def test_one_bar_shows_all_shards(two, tmp_path):
    told = []
    with shown_by(bar_into(told)):
        two.run(Sums(tmp_path), [(number, "") for number in range(3)], title="rollouts")

    assert [("rollouts", 3), 1, 1, 1, "end"] == told


@pytest.mark.real
def test_closed_workers_are_gone(two, tmp_path):
    two.run(Sums(tmp_path), [(0, ""), (1, "")])
    ids = [own.process.pid for own in two._workers]
    two.close()

    assert 2 == len(ids)
    assert not any(map(psutil.pid_exists, ids))


DRIVER = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from shard_sums import Sums
from astra_parts.executors.processes import ProcessesExecutor

if __name__ == "__main__":
    executor = ProcessesExecutor(ProcessesExecutor.Options())
    executor.run(Sums(Path({folder!r})), [(0, ""), (1, "")])
    print(*(own.process.pid for own in executor._workers), flush=True)
    executor.run(Sums(Path({folder!r})), [(2, "wait"), (3, "wait")])
"""


@pytest.mark.real
def test_a_killed_driver_leaves_no_worker_behind(tmp_path):
    path = [str(ROOT), str(ROOT / "tests" / "astra_core")]
    (tmp_path / "driver.py").write_text(DRIVER.format(path=path, folder=str(tmp_path)))
    with subprocess.Popen(
        [sys.executable, tmp_path / "driver.py"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as driver:
        ids = [int(word) for word in driver.stdout.readline().split()]
        workers = [psutil.Process(number) for number in ids]
        driver.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(workers, timeout=120)

    assert 2 == len(workers)
    assert [] == alive
