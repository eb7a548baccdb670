"""The class of processor, as far as it affects the speed or rounding of products."""

import os

import torch

_WITHOUT_BF16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI")
"""Values of ``ONEDNN_MAX_CPU_ISA`` under which oneDNN knows no product of bf16 numbers."""


def has_bf16_units() -> bool:
    """True if torch multiplies bf16 numbers in units made for that, and does not emulate them.

    Without the units, bf16 products are correct but slower than fp32 ones, up to forty times. The
    environment matters: it can make oneDNN ignore the units.
    """
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in _WITHOUT_BF16:
        return False
    # With AVX-512, oneDNN says yes even without the units.
    if torch.cpu._is_avx512_supported():  # noqa: SLF001 - torch names no public way
        return has_amx() or bool(torch.cpu._is_avx512_bf16_supported())  # noqa: SLF001
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


def has_amx() -> bool:
    """True if there is a matrix unit (AMX), and AVX-512 is not disabled for torch."""
    # A lower ATEN_CPU_CAPABILITY simulates a processor without the unit.
    vectors = torch.backends.cpu.get_cpu_capability()
    has_unit = bool(torch.cpu._is_amx_tile_supported())  # noqa: SLF001
    return has_unit and vectors not in {"DEFAULT", "AVX2"}


def processor_class() -> str:
    """Its class in words, best unit first; units that the environment disables do not count."""
    vectors = torch.backends.cpu.get_cpu_capability()
    if has_amx():
        return "AMX"
    units = "bf16 units" if has_bf16_units() else "no bf16 units"
    return f"{vectors}, {units}, no AMX"
