import json

import pytest
import torch
from each_row import each_row

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import build, find
from astra_core.training.resume.state import as_json, from_json

ARGUMENTS = {
    "StepLR": {"step_size": 2, "gamma": 0.5},
    "MultiStepLR": {"milestones": [1, 3], "gamma": 0.5},
    "ExponentialLR": {"gamma": 0.5},
    "LinearLR": {"start_factor": 0.5, "total_iters": 2},
    "ConstantLR": {"factor": 0.5, "total_iters": 2},
    "PolynomialLR": {"power": 1.0, "total_iters": 4},
    "CosineAnnealingLR": {},
    "CosineAnnealingWarmRestarts": {"T_0": 2},
}
RATES = {
    "StepLR": [1, 1, 0.5, 0.5, 0.25],
    "MultiStepLR": [1, 0.5, 0.5, 0.25, 0.25],
    "ExponentialLR": [1, 0.5, 0.25, 0.125, 0.0625],
    "LinearLR": [0.5, 0.75, 1, 1, 1],
    "ConstantLR": [0.5, 0.5, 1, 1, 1],
    "PolynomialLR": [1, 0.75, 0.5, 0.25, 0],
    "CosineAnnealingLR": [1, 0.8535534, 0.5, 0.1464466, 0],
    "CosineAnnealingWarmRestarts": [1, 0.5, 1, 0.5, 1],
}


def rates(kind, *, warmup_steps=0, training_steps=4, cut=None, arguments=None):
    """The rate of every training step, and of one more; after ``cut`` of them in a new process."""
    options = {"kind": kind, "arguments": ARGUMENTS[kind] if arguments is None else arguments}
    steps = {"warmup_steps": warmup_steps, "training_steps": training_steps}

    def begun(lr=1.0):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
        plugin = build("schedule", Choice(name="torch", options=options))
        return optimizer, plugin.schedule(optimizer, **steps)

    optimizer, schedule = begun()
    found = [optimizer.param_groups[0]["lr"]]
    for step in range(training_steps):
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
        if step + 1 == cut:
            state = json.dumps(as_json(schedule.state_dict(), subject="schedule"))
            optimizer, schedule = begun()
            schedule.load_state_dict(from_json(json.loads(state)))
            optimizer.param_groups[0]["lr"] = found[-1]
    return found


@each_row("kind", sorted(RATES))
def test_the_rates_are_torchs(kind):
    assert RATES[kind] == pytest.approx(rates(kind))


@each_row("kind", sorted(RATES))
def test_a_warm_up_comes_before_and_its_last_step_is_the_first_of_the_schedule(kind):
    found = rates(kind, warmup_steps=3, training_steps=6)

    assert [1 / 3, 2 / 3] == pytest.approx(found[:2])
    assert RATES[kind] == pytest.approx(found[2:])


@each_row("warmup_steps", [0, 3])
@each_row("kind", sorted(RATES))
def test_a_resumed_run_has_the_rates_of_a_whole_one(kind, warmup_steps):
    whole = rates(kind, warmup_steps=warmup_steps, training_steps=6)
    for cut in range(1, 6):
        assert whole == rates(kind, warmup_steps=warmup_steps, training_steps=6, cut=cut)


def test_a_cosine_ends_where_it_is_set_to():
    assert 0.0 == pytest.approx(rates("CosineAnnealingLR", arguments={"T_max": 2})[2])
    assert 0.1 == rates("CosineAnnealingLR", arguments={"eta_min": 0.1})[-1]


@each_row(
    ("kind", "arguments", "said"),
    [
        ("StepLR", {}, "step_size"),
        ("StepLR", {"step_size": 1, "T_max": 2}, "T_max"),
        ("CosineAnnealingWarmRestarts", {"T_0": 0}, "T_0"),
        ("OneCycleLR", {}, "'StepLR'"),
    ],
)
def test_what_torch_would_refuse_is_refused_before_any_weights_load(kind, arguments, said):
    options = {"kind": kind, "arguments": arguments}
    with pytest.raises(ConfigurationError, match=said) as refused:
        find("schedule", Choice(name="torch", options=options))

    assert 1 == len(str(refused.value).splitlines())
