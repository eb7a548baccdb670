import os
import subprocess
import sys
import time

import pytest
from each_row import each_row

from tasks.machine import thread_waits as waits
from tasks.machine.thread_waits import FREE, SHARED, set_thread_waits, thread_waits

TWO = {0, 1}


def looks(monkeypatch, tmp_path, idle, *, cores=TWO):
    """A machine whose cores are idle for these shares of the time that a look takes."""
    ticks = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    now = iter((0.0, 10.0))
    asked = iter((0, 10 * ticks))

    def written(*_):
        passed = next(asked)
        rows = [f"cpu{core} 9 9 9 {int(share * passed)} 0 0" for core, share in idle.items()]
        stat.write_text("\n".join(["cpu 9 9 9 9 9 9", *rows, "intr 5"]), encoding="ascii")

    written()
    monkeypatch.setattr(waits, "_STAT", stat)
    monkeypatch.setattr(waits.time, "sleep", written)
    monkeypatch.setattr(waits.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(waits.os, "sched_getaffinity", lambda _: cores)


@each_row(
    ("idle", "num_threads", "expected"),
    [
        ({0: 1.0, 1: 0.9}, 2, FREE),
        ({0: 1.0, 1: 0.3}, 2, SHARED),
        ({0: 0.1, 1: 0.1}, 0, SHARED),
        # Half of what is there is enough for one thread of two cores' four.
        ({0: 1.0, 1: 1.0, 2: 0.0, 3: 0.0}, 2, FREE),
        ({0: 1.0, 1: 1.0, 2: 0.0, 3: 0.0}, 3, SHARED),
        ({0: 1.0, 1: 1.0, 2: 0.0, 3: 0.0}, 0, SHARED),
        # Waits that no thread has.
        ({0: 0.0, 1: 0.0}, 1, FREE),
    ],
)
def test_threads_wait_briefly_where_fewer_cores_are_free(
    monkeypatch, tmp_path, idle, num_threads, expected
):
    looks(monkeypatch, tmp_path, idle, cores=set(idle))

    assert expected == thread_waits(num_threads)


def test_cores_that_the_process_may_not_use_do_not_count(monkeypatch, tmp_path):
    looks(monkeypatch, tmp_path, {0: 1.0, 1: 1.0, 2: 0.0, 3: 0.0}, cores={2, 3})

    assert SHARED == thread_waits(2)


def test_where_nobody_says_who_works_the_cores_count_as_free(monkeypatch, tmp_path):
    monkeypatch.setattr(waits, "_STAT", tmp_path / "absent")

    assert FREE == thread_waits(0)


@pytest.mark.real
def test_a_neighbour_on_every_core_is_seen():
    code = "while True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", code]) for _ in os.sched_getaffinity(0)]
    try:
        assert SHARED == thread_waits(0)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_what_is_set_already_is_left_alone(monkeypatch):
    for name in FREE:
        monkeypatch.setenv(name, "mine")
    # Nothing is left to choose, so nobody looks.
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("the cores were looked at"))
    set_thread_waits(0)

    assert {"mine"} == {os.environ[name] for name in FREE}


@pytest.mark.real
def test_a_stage_chooses_before_torch_is_loaded():
    code = (
        "import os, sys; from tasks.machine.thread_waits import FREE;"
        "from tasks.pipeline import boundary; from tasks.pipeline.order import find_stage;"
        "choose = boundary.set_thread_waits;"
        "loaded = 'torch' in sys.modules; boundary._prepare(find_stage('models'));"
        "print(loaded, *(os.environ[name] for name in FREE))"
    )
    free = {name: value for name, value in os.environ.items() if name not in FREE}
    told = subprocess.run(
        [sys.executable, "-c", code], env=free, capture_output=True, text=True, check=True
    ).stdout

    loaded, *chosen = told.splitlines()[-1].split()
    assert "False" == loaded
    assert chosen in ([*FREE.values()], [*SHARED.values()])
