"""Main memory: its peak, freed memory that a process keeps, and pages of files that it drops."""

import ctypes
import os
import re
import resource
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_MIB = 2**20
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_NOTHING: Mapping[str, float] = MappingProxyType({})
# glibc's mallopt(3): two of its parameters, and the value that switches the first off.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = -1
# Less freed memory than this is not worth getting fresh pages for.
_MUCH_FREED_MIB = 256
# First and last address of what is mapped of a file and was not changed since; see proc(5).
_MAPPINGS = Path("/proc/self/smaps")
_UNWRITTEN = re.compile(
    r"^(\w+)-(\w+) \S+ \S+ \S+ [1-9].*\n"
    r"(?:[A-Z].*\n)*Anonymous: +0 kB\n(?:[A-Z].*\n)*Swap: +0 kB\n",
    re.MULTILINE,
)
_DO_NOT_NEED = 4  # see madvise(2)
# Fewer weights are not worth reading the kernel's table of mappings for.
_MUCH_MAPPED_MIB = 64


def peak_memory(
    device: "torch.device", *, before: Mapping[str, float] = _NOTHING
) -> dict[str, float]:
    """Peaks since the last call in MiB; resets the counters.

    Args:
        device: Where the models are.
        before: An earlier answer; the larger of both is given.

    Returns:
        ``memory/peak_mib``, what this process held in main memory, and for a GPU
        ``memory/gpu_peak_mib``, what its tensors held there. If the platform cannot reset the
        counter (any but Linux), the former is the peak since the process began.
    """
    peaks = {"memory/peak_mib": resident_peak_mib()}
    if device.type == "cuda":
        import torch

        peaks["memory/gpu_peak_mib"] = torch.cuda.max_memory_allocated(device) / _MIB
        torch.cuda.reset_peak_memory_stats(device)
    return {name: max(peak, before.get(name, 0.0)) for name, peak in peaks.items()}


def resident_peak_mib() -> float:
    """What this process held in main memory at most since the last call, or since it began."""
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        # Bytes on macOS, KiB elsewhere.
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / _MIB
    with suppress(OSError):
        _RESET.write_text("5")  # see proc(5): the peak becomes what is resident now
    return int(found[1]) / 1024


def keep_freed_memory() -> bool:
    """Lets this process reuse what it frees, instead of returning it to the kernel.

    By default glibc gets every large tensor fresh from the kernel, which clears it page by page
    as it is written to. Decoding and training allocate and free gigabytes per second: on a virtual
    machine they spend up to half of their time on that. The peak is the same, but it is held until
    the process ends.

    Returns:
        True when it has an effect; False where the C library is another one, or where the
        environment says what is returned (``MALLOC_*``, or such a one of ``GLIBC_TUNABLES``).
    """
    names = {name for name in os.environ if name.startswith("MALLOC_")}
    if names or re.search("mmap|trim", os.environ.get("GLIBC_TUNABLES", "")):
        return False
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    return tell is not None and all(
        tell(name, value) for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER))
    )


class _HeapFigures(ctypes.Structure):
    """What glibc's mallinfo2(3) tells; the ninth are the bytes that lie free."""

    _fields_ = (("figures", ctypes.c_size_t * 10),)


def return_freed_memory() -> None:
    """Gives the kernel what lies freed, if that is much; for where the sizes of tensors change.

    What one phase freed seldom fits the next: kept over all of them it adds up.
    """
    libc = ctypes.CDLL(None)
    tell, trim = (getattr(libc, name, None) for name in ("mallinfo2", "malloc_trim"))
    if tell is None or trim is None:
        return
    tell.restype = _HeapFigures
    if tell().figures[8] > _MUCH_FREED_MIB * _MIB:
        trim(0)


def drop_file_pages(weights: "Collection[torch.Tensor]") -> None:
    """Lets go of pages that only repeat a file: weights that were mapped and of which copies serve.

    They are mapped again when they are read, from the file's cache. A mapping with a page that was
    written to stays, since that is in no file.
    """
    if sum(each.nbytes for each in weights) < _MUCH_MAPPED_MIB * _MIB or not _MAPPINGS.exists():
        return
    libc, page = ctypes.CDLL(None), os.sysconf("SC_PAGE_SIZE")
    found = _UNWRITTEN.findall(_MAPPINGS.read_text())
    mappings = [(int(low, 16), int(high, 16)) for low, high in found]
    for each in weights:
        start, end = each.data_ptr(), each.data_ptr() + each.nbytes
        if any(low <= start and end <= high for low, high in mappings):
            start, end = -(-start // page) * page, end // page * page
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DO_NOT_NEED)
