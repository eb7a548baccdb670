"""Runs other programs' code with the default allocator, as in their own processes."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from astra_core.engine.memory import keep_freed_memory

# glibc's mallopt(3): from which sizes on memory is given back and taken fresh, and how often. The
# sizes are those that glibc arrives at by itself while a program frees large tensors.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_DEFAULTS = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 32 * 2**20, _TRIM_THRESHOLD: 64 * 2**20}


@contextmanager
def default_allocator() -> Iterator[None]:
    """Runs the body as if ``keep_freed_memory`` had not been called.

    Memory that the process kept so far goes back to the kernel, so the body starts cold.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        yield
        return
    for name, value in _DEFAULTS.items():
        libc.mallopt(name, value)
    libc.malloc_trim(0)
    try:
        yield
    finally:
        keep_freed_memory()
