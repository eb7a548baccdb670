import errno

import numpy as np
import pytest
import torch
from each_row import each_row

from astra_core.errors import ConfigurationError, DataError, OutOfMemoryError
from tasks.machine.memory import is_out_of_memory, out_of_memory

FAR = 1 << 60


def throw(error):
    raise error


def blamed():
    """An error that names a file, though memory ran out."""
    try:
        throw(OSError(errno.ENOMEM, "Cannot allocate memory", "model.safetensors"))
    except OSError:
        throw(ConfigurationError("model.safetensors must hold weights"))


def unmapped():
    throw(ImportError("libx.so: failed to map segment from shared object"))


@each_row(
    "act",
    [
        lambda: torch.empty(FAR),
        lambda: np.empty(FAR >> 4),
        lambda: bytearray(FAR),
        blamed,
        unmapped,
    ],
)
def test_memory_is_named_whoever_asked_for_it(act):
    with pytest.raises((MemoryError, RuntimeError, ConfigurationError, ImportError)) as caught:
        act()
    assert is_out_of_memory(caught.value)
    told = out_of_memory(caught.value)

    assert str(told).startswith("this step must have more memory, got none")
    assert len(str(told)) < 300
    assert told is out_of_memory(told)


@each_row("error", [ValueError("x"), DataError("memory.jsonl must hold rows"), OSError(2, "gone")])
def test_another_error_is_none_of_memory(error):
    assert not is_out_of_memory(error)
    assert not isinstance(error, OutOfMemoryError)
