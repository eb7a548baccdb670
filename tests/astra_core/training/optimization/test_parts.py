import json
from pathlib import Path

import pytest
import torch
from each_row import each_row

from astra_core.config import Part
from astra_core.errors import ConfigurationError
from astra_core.training.optimization.parts import is_active, parameter_groups, trained_weights

VECTORS = Path(__file__).parents[3] / "vectors"


def vectors(name):
    return json.loads((VECTORS / f"{name}.json").read_text("utf-8"))["cases"]


def as_part(case):
    """The part that has the timetable of a case."""
    if case["schedule"] == "constant":
        return Part(pattern="x")
    if case["schedule"] == "contiguous_periodic":
        span = (case["start"], case["stop"])
    else:
        num = case["first_agent_num_rounds"]
        span = (0, num) if case["first_agent"] else (num, case["period"])
    return Part(pattern="x", active="periodic", period=case["period"], start=span[0], stop=span[1])


@each_row("case", [c for c in vectors("nip_update_schedules") if "schedule" in c])
def test_a_part_moves_when_its_timetable_says(case):
    part = as_part(case)

    assert case["expected"] == [is_active(part, step) for step in range(len(case["expected"]))]


def test_a_part_that_never_moves_or_has_no_rate_is_frozen():
    assert not is_active(Part(pattern="x", active="never"), 0)
    assert not is_active(Part(pattern="x", lr_factor=0.0), 0)


class Modules(torch.nn.Module):
    """Weights with the names of a case."""

    def __init__(self, names):
        super().__init__()
        self.weights = torch.nn.ParameterDict(
            {n: torch.nn.Parameter(torch.zeros(1)) for n in names}
        )


def patterns(spec):
    """The parts that mean what NIP's factors mean: a body's factor counts for its sub-parts too."""
    parts = {}
    for key, factor in spec.items():
        if key.endswith("_lr_factor"):
            place = key.removesuffix("_lr_factor")
            owner = place.removesuffix("_body")
            pattern = f"{owner}_(gnn|body)$" if place.endswith("_body") else f"{place}$"
            parts[place] = Part(pattern=pattern, lr_factor=factor)
    return parts


@each_row("case", vectors("nip_per_part_learning_rates"))
def test_factors_of_all_parts_of_a_weight_multiply(case):
    model = Modules(case["expected_lrs"])
    groups = parameter_groups(
        model, (), weight_decay=0.0, lr=case["base_lr"], parts=patterns(case["spec"])
    )
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    found = {name: rates[id(weight)] for name, weight in model.weights.items()}

    assert case["expected_lrs"] == pytest.approx(found)
    assert len(found) == sum(len(group["params"]) for group in groups)


def test_weights_of_the_algorithm_are_a_part_too():
    own = torch.nn.Parameter(torch.zeros(2))
    model = Modules(["a"])
    groups = parameter_groups(
        model, [own], weight_decay=0.0, parts={"head": Part(pattern=r"^algorithm\.", lr_factor=3.0)}
    )

    assert [1.0, 3.0] == sorted(group["lr"] for group in groups)
    assert ["weights.a", "algorithm.0"] == list(trained_weights(model, [own]))


def test_a_part_of_no_weight_is_refused_with_some_names():
    with pytest.raises(ConfigurationError, match=r"parts\.head\.pattern .*'weights\.a'"):
        parameter_groups(
            Modules(["a"]), (), weight_decay=0.0, parts={"head": Part(pattern="nowhere")}
        )


@each_row(
    "part",
    [
        {"pattern": "("},
        {"pattern": ""},
        {"pattern": "x", "active": "periodic", "period": 2, "start": 1, "stop": 1},
        {"pattern": "x", "active": "periodic", "period": 2, "start": 0, "stop": 3},
        {"pattern": "x", "lr_factor": -1.0},
    ],
)
def test_a_part_that_cannot_be_used_is_refused(part):
    with pytest.raises(ConfigurationError):
        Part.read(part, where="training.parts.x")
