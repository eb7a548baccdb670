"""The machine that a benchmark ran on, in words: figures are those of its class of processor."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from astra_core.engine.processor import processor_class


def machine() -> str:
    """Processor, its class, libraries and load."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl"))
    load = os.getloadavg()[0]
    return (
        f"{_processor()} ({processor_class()}), {os.cpu_count()} cores, {libraries}; load of the "
        f"machine at the end {load:.1f}. Other classes of processor: not measured."
    )


def _processor() -> str:
    """The processor's name from the kernel, else from Python."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text("utf-8").splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
