import json

import pytest
import torch

from benchmarks.measures import gpu


@pytest.mark.wide
def test_updates_have_their_lines(capsys):
    assert 0 == gpu.main(["--tiny", "--only", "updates", "--uncompiled"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["lines"]
    torch.use_deterministic_algorithms(mode=False)
    ours, grpo, plain = found

    assert "ours, grpo" == grpo["way"]
    assert ours["loss"] == pytest.approx(plain["loss"], abs=1e-3)
