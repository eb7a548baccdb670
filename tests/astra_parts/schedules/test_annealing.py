import json
from pathlib import Path

import pytest
import torch
from each_row import each_row

from astra_core.config import Choice
from astra_core.registry import build
from astra_parts.schedules.annealing import anneal

SCHEDULES = json.loads(
    (Path(__file__).parents[2] / "vectors" / "nip_schedules.json").read_text(encoding="utf-8")
)["cases"]


@each_row("case", [case for case in SCHEDULES if "schedule" in case])
def test_annealing_follows_its_formula(case):
    found = [
        anneal(case["initial"], step, kind=case["schedule"], rate=case["rate"])
        for step in case["iterations"]
    ]

    assert case["expected"] == pytest.approx(found, abs=1e-12)


@each_row(
    ("kind", "expected"),
    [("linear", [0.5, 1.0, 0.75, 0.5, 0.25, 0.0]), ("exponential", [0.5, 1.0, 0.75, 0.5625])],
)
def test_an_annealed_rate_falls_after_its_warm_up(kind, expected):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    choice = Choice(name="annealing", options={"kind": kind, "rate": 0.25})
    schedule = build("schedule", choice).schedule(optimizer, warmup_steps=2, training_steps=9)
    rates = []
    for _ in expected:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()

    assert expected == pytest.approx(rates)
