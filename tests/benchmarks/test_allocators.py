import ctypes
import subprocess
import sys

import pytest

# Fills and frees a block of 64 MiB, in the way of others twice.
FAULTS = """
import resource
import numpy as np
from astra_core.engine.memory import keep_freed_memory
from benchmarks.allocators import default_allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(64 * 2**20, dtype=np.int8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
first = faults()
with default_allocator():
    others = faults(), faults()
print(first, *others, faults(), faults())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc's allocator")
def test_large_tensors_of_others_come_fresh_from_the_kernel_and_ours_do_not():
    command = [sys.executable, "-c", FAULTS]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    first, *others, cold, warm = [int(word) for word in told.split()]

    assert min(others) >= first / 2
    assert cold >= first / 2
    assert warm <= first / 10
