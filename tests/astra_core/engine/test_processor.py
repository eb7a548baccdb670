import os
import platform
import subprocess
import sys

import pytest
import torch
from each_row import each_row

from astra_core.engine.processor import has_amx, has_bf16_units, processor_class

ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="switches of x86 processors")
TELL = """
from astra_core.engine.processor import has_bf16_units, processor_class
print(has_bf16_units(), processor_class(), sep="|")
"""


def play(monkeypatch, *, vectors="AVX512", has_unit=False, has_bf16=False, is_known=True):
    """Torch answers as on another processor."""
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    answers = {
        "_is_avx512_supported": vectors == "AVX512",
        "_is_amx_tile_supported": has_unit,
        "_is_avx512_bf16_supported": has_bf16,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cpu, name, lambda answer=answer: answer)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)

    class Operators:
        @staticmethod
        def _is_mkldnn_bf16_supported():
            return is_known

    monkeypatch.setattr(torch.ops, "mkldnn", Operators())


@each_row(
    ("processor", "expected"),
    [
        ({"has_unit": True, "has_bf16": True}, "AMX"),
        ({"has_bf16": True}, "AVX512, bf16 units, no AMX"),
        # oneDNN says that it can multiply bf16 numbers here, and imitates it.
        ({}, "AVX512, no bf16 units, no AMX"),
        ({"vectors": "AVX2", "is_known": False}, "AVX2, no bf16 units, no AMX"),
        ({"vectors": "DEFAULT"}, "DEFAULT, bf16 units, no AMX"),
    ],
)
def test_a_processor_is_recognised_by_its_units(monkeypatch, processor, expected):
    play(monkeypatch, **processor)

    assert expected == processor_class()
    assert has_bf16_units() == ("no bf16" not in expected)


@each_row("vectors", ["DEFAULT", "AVX2"])
def test_who_plays_a_smaller_processor_has_no_matrix_unit(monkeypatch, vectors):
    play(monkeypatch, vectors=vectors, has_unit=True)

    assert not has_amx()


@each_row(("isa", "expected"), [("avx2", False), ("AVX512_CORE_BF16", True)])
def test_units_that_onednn_is_to_leave_alone_do_not_count(monkeypatch, isa, expected):
    play(monkeypatch, has_bf16=True)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", isa)

    assert expected == has_bf16_units()


@pytest.mark.real
@ON_X86
def test_torch_itself_answers_for_the_processor_that_is_played():
    played = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    told = subprocess.run(
        [sys.executable, "-c", TELL],
        env={**os.environ, **played},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert "False|DEFAULT, no bf16 units, no AMX" == told.strip()
