"""A small run on any device: every line is there, and the ways agree."""

import json

import pytest
import torch

from benchmarks.measures import gpu


@pytest.fixture(autouse=True)
def kernels_as_before():
    yield
    torch.use_deterministic_algorithms(mode=False)


@pytest.mark.wide
def test_decoding_and_rollouts_have_their_lines(capsys):
    assert 0 == gpu.main(["--tiny", "--only", "decoding", "--only", "rollouts", "--uncompiled"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["lines"]

    assert ["ours", "ours", "generate"] == [own["way"] for own in found if "way" in own]
    assert all(own["tokens_per_s"] > 0 for own in found)
