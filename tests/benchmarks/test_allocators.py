import ctypes
import subprocess
import sys

import pytest

# Fills and frees a block of 64 MiB, in the way of others twice; without huge pages (prctl 41), of
# which the kernel has now more and now fewer to give.
FAULTS = """
import ctypes
import resource
import numpy as np
from astra_core.engine.memory import keep_freed_memory
from benchmarks.allocators import default_allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(64 * 2**20, dtype=np.int8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
keep_freed_memory()
first = faults()
with default_allocator():
    others = faults(), faults()
print(first, *others, faults(), faults())
"""


@pytest.mark.wide
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc's allocator")
def test_large_tensors_of_others_come_fresh_from_the_kernel_and_ours_do_not():
    command = [sys.executable, "-c", FAULTS]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    first, *others, cold, warm = [int(word) for word in told.split()]

    assert min(others) >= first / 2
    assert cold >= first / 2
    assert warm <= first / 10
