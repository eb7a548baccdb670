import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_training import configured, trainer_of

from astra_core.algorithms.dpo import DPO
from astra_core.engine import memory
from astra_core.engine.memory import peak_memory
from astra_core.evaluator import Evaluator

CPU = torch.device("cpu")
HELD_MIB = 200
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts anew")
ON_GLIBC = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc's allocator"
)
BLOCK_MIB = 64
# Touches a block, frees it and touches another of its size; prints the faults of each.
TOUCH_TWICE = """
import resource, sys
import numpy as np
from astra_core.engine.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty({size}, dtype=np.int8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

told = keep_freed_memory() if sys.argv[1] == "keep" else False
print(int(told), faults(), faults())
"""


def touched_twice(way, **environment):
    """What ``keep_freed_memory`` returned, and the faults of both blocks, in a process."""
    script = TOUCH_TWICE.format(size=BLOCK_MIB * 2**20)
    free = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    command = [sys.executable, "-c", script, way]
    told = subprocess.run(
        command, env=free | environment, capture_output=True, text=True, check=True
    ).stdout
    return [int(word) for word in told.split()]


class Kernel:
    """Stands in for the files of /proc, so that what else this process held does not matter."""

    def __init__(self):
        self.peak_mib = self.held_mib = 500

    def hold(self):
        """Memory is taken and given back."""
        self.peak_mib = self.held_mib + HELD_MIB

    def read_text(self):
        return f"VmPeak: 1 kB\nVmHWM:  {self.peak_mib * 1024} kB\nVmRSS: 1 kB\n"

    def write_text(self, word):
        assert "5" == word
        self.peak_mib = self.held_mib


@pytest.fixture
def kernel(monkeypatch):
    own = Kernel()
    monkeypatch.setattr(memory, "_STATUS", own)
    monkeypatch.setattr(memory, "_RESET", own)
    return own


# Takes and gives back memory; prints what was resident before, the peak, and the peak after that.
PEAK_TWICE = """
import re
from pathlib import Path
import numpy as np
from astra_core.engine.memory import resident_peak_mib

resident_peak_mib()
held = int(re.search(r"VmRSS:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
assert np.ones({size}, dtype=np.int8)[-1] == 1
print(held, resident_peak_mib(), resident_peak_mib())
"""


@pytest.mark.real
@ON_LINUX
def test_a_peak_is_reported_once_although_the_memory_was_given_back():
    # In a process of its own: this one may use again what tests before it have freed.
    script = PEAK_TWICE.format(size=HELD_MIB * 2**20)
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    held, peak, after = map(float, told.split())

    assert peak == pytest.approx(held + HELD_MIB, abs=HELD_MIB / 4)
    assert after == pytest.approx(held, abs=HELD_MIB / 4)


def test_of_two_peaks_the_larger_is_given():
    larger = {"memory/peak_mib": 1e9, "time/eval_s": 2e9}

    assert {"memory/peak_mib": 1e9} == peak_memory(CPU, before=larger)
    assert peak_memory(CPU, before={"memory/peak_mib": 1.0})["memory/peak_mib"] > 1.0


def test_without_proc_it_is_the_peak_since_the_process_began(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "absent")
    first = peak_memory(CPU)["memory/peak_mib"]

    # An interpreter with torch in it: tens of MiB, not of KiB or GiB.
    assert 50 < first < 50_000
    assert peak_memory(CPU)["memory/peak_mib"] >= first


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_its_own_peak_is_reported_too():
    device = torch.device("cuda")
    peak_memory(device)
    held = torch.cuda.memory_allocated(device) / 2**20
    torch.ones(HELD_MIB * 2**20, dtype=torch.int8, device=device)

    assert peak_memory(device)["memory/gpu_peak_mib"] == pytest.approx(held + HELD_MIB, abs=1)
    assert peak_memory(device)["memory/gpu_peak_mib"] == pytest.approx(held, abs=1)


@pytest.mark.real
def test_an_update_reports_what_it_held(kernel, monkeypatch):
    step = DPO.step
    updates = []

    def hungry(self, batch):
        updates.append(batch)
        if len(updates) == 2:
            kernel.hold()
        return step(self, batch)

    monkeypatch.setattr(DPO, "step", hungry)
    trainer = trainer_of(configured(training_steps=3), is_evaluated=False)
    peaks = [report.timings["memory/peak_mib"] for report in trainer.steps()]

    assert [500, 500 + HELD_MIB] == peaks[:2]
    assert {500} == set(peaks[2:])


@pytest.mark.real
def test_the_last_update_before_an_evaluation_reports_what_that_held(kernel, monkeypatch):
    evaluate = Evaluator.evaluate
    monkeypatch.setattr(Evaluator, "evaluate", lambda *own: kernel.hold() or evaluate(*own))
    config = configured(training_steps=3, eval_every=2, eval_first=False)
    reports = list(trainer_of(config).steps())
    peaks = {report.training_step: report.timings["memory/peak_mib"] for report in reports}

    assert [500, 500 + HELD_MIB] == [peaks[1], peaks[2]]
    assert not any("memory/" in name for report in reports for name in report.row())


@pytest.mark.real
@ON_GLIBC
def test_freed_memory_is_used_again_and_not_taken_again():
    kept, first, second = touched_twice("keep")

    # Pages of 4 KiB, or larger ones: that depends on the kernel.
    assert kept
    assert first >= BLOCK_MIB / 4
    assert second <= first / 10


@pytest.mark.real
@ON_GLIBC
def test_without_it_every_large_block_is_taken_again():
    _, first, second = touched_twice("leave")

    assert second >= first / 2


@pytest.mark.real
@ON_GLIBC
@pytest.mark.parametrize(
    "environment",
    [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=65536"}],
    ids=["MALLOC", "GLIBC_TUNABLES"],
)
def test_an_allocator_that_the_environment_sets_up_is_left_alone(environment):
    kept, first, second = touched_twice("keep", **environment)

    assert not kept
    assert second >= first / 2


# Holds a block in two pieces, frees the lower one and returns it; prints what stayed resident.
RETURN = """
import re
from pathlib import Path
import numpy as np
from astra_core.engine.memory import keep_freed_memory, return_freed_memory

def resident():
    return int(re.search(r"VmRSS:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

keep_freed_memory()
freed, kept = (np.ones({size} * 2**20, dtype=np.int8) for _ in range(2))
before = resident()
del freed
print(before - resident(), end=" ")
return_freed_memory()
print(before - resident())
"""


@pytest.mark.real
@ON_GLIBC
@ON_LINUX
@pytest.mark.parametrize("freed_mib", [64, 400])
def test_much_freed_memory_goes_back_and_little_is_kept(freed_mib):
    free = {name: value for name, value in os.environ.items() if "MALLOC" not in name}
    told = subprocess.run(
        [sys.executable, "-c", RETURN.replace("{size}", str(freed_mib))],
        env=free,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kept, returned = (float(word) for word in told.split())
    assert 0 == pytest.approx(kept, abs=5)
    assert (freed_mib if freed_mib == 400 else 0) == pytest.approx(returned, abs=40)


def file_mib():
    """What this process holds of mapped files."""
    told = re.search(r"RssFile:\s*(\d+) kB", Path("/proc/self/status").read_text())
    return int(told[1]) / 1024


@ON_LINUX
def test_weights_of_a_file_are_dropped_unless_they_were_changed(tmp_path):
    save_file({"weight": torch.ones(80, 2**18)}, tmp_path / "model.safetensors")
    own, changed = (load_file(tmp_path / "model.safetensors")["weight"] for _ in range(2))
    changed[7] = 2.0
    total = own.sum() + changed.sum()
    before = file_mib()
    memory.drop_file_pages([changed])

    assert before == pytest.approx(file_mib(), abs=10)
    memory.drop_file_pages([own])
    assert 80 == pytest.approx(before - file_mib(), abs=10)
    assert total == own.sum() + changed.sum()
