"""How a thread of a stage waits for another, depending on whether others use the same cores.

libgomp's threads, which torch uses on Linux, poll for work many times before they sleep: 300,000
times by default, after every short product of a small model. On free cores many polls are best, as
waking a thread takes longer than a short product. Beside a neighbour few are best: on a shared core
the thread that is waited for cannot work meanwhile. The number of polls changes no result, so it is
chosen whenever a stage starts; benchmarks/measures/neighbours.py shows what it costs.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

FREE: Mapping[str, str] = MappingProxyType({"GOMP_SPINCOUNT": "4000"})
"""On free cores: some tenths of a millisecond, in case a neighbour comes later."""
SHARED: Mapping[str, str] = MappingProxyType({"GOMP_SPINCOUNT": "200"})
"""Beside a neighbour: no longer than falling asleep takes."""
_STAT = Path("/proc/stat")
_LOOK_S = 0.1


def thread_waits(num_threads: int) -> Mapping[str, str]:
    """The variables for this many threads (0: one for each core), to be set before torch is loaded.

    Takes a tenth of a second where several threads are asked for.
    """
    cores = len(os.sched_getaffinity(0))
    wanted = min(num_threads or cores, cores)
    if wanted == 1:
        return FREE
    return FREE if _free_cores() > wanted - 0.5 else SHARED


def set_thread_waits(num_threads: int) -> None:
    """Sets those of the variables that are not set yet; see ``thread_waits``."""
    if os.environ.keys() >= FREE.keys():
        return
    for name, value in thread_waits(num_threads).items():
        os.environ.setdefault(name, value)


def _free_cores() -> float:
    """How many of this process's cores are idle now; all of them where that cannot be measured."""
    before = _idle_s()
    start = time.perf_counter()
    time.sleep(_LOOK_S)
    idle = {core: seconds - before.get(core, seconds) for core, seconds in _idle_s().items()}
    elapsed = time.perf_counter() - start
    cores = os.sched_getaffinity(0)
    return sum(min(idle.get(core, elapsed) / elapsed, 1.0) for core in cores)


def _idle_s() -> dict[int, float]:
    """Seconds that each core has been idle, by its number; empty where that cannot be read."""
    try:
        lines = _STAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    ticks = os.sysconf("SC_CLK_TCK")
    fields = [line.split() for line in lines]
    # user, nice, system, idle, iowait
    return {
        int(name.removeprefix("cpu")): (int(idle) + int(waiting)) / ticks
        for name, _, _, _, idle, waiting, *_ in (each for each in fields if len(each) > 5)
        if name.startswith("cpu") and name != "cpu"
    }
