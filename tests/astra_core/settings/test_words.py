from typing import get_args

from each_row import each_row

from astra_core.config import Choice, TrainingConfiguration
from astra_core.registry import read_options, resolve
from astra_core.settings.words import KINDS, NAMES, TorchKind, in_our_words
from astra_core.training.optimization.optimizers import TransformersSchedule


@each_row(
    ("theirs", "ours"),
    [
        ("AdamW", {"name": "adamw"}),
        ("torch.optim.SGD", {"name": "sgd"}),
        ("adamw_torch", {"name": "adamw"}),
        ("GRPO", {"name": "grpo"}),
        ("IPO", {"name": "dpo", "options": {"loss": "ipo"}}),
        ("ReduceLROnPlateau", {"name": "plateau"}),
        ("cosine", {"name": "transformers", "options": {"kind": "cosine"}}),
        (
            {"name": "cosine", "options": {"arguments": {"num_cycles": 2}}},
            {"name": "transformers", "options": {"kind": "cosine", "arguments": {"num_cycles": 2}}},
        ),
        (
            {"name": "torch.optim.lr_scheduler.StepLR", "options": {"step_size": 2}},
            {"name": "torch", "options": {"kind": "StepLR", "arguments": {"step_size": 2}}},
        ),
        (
            {"name": "CosineAnnealingLR"},
            {"name": "torch", "options": {"kind": "CosineAnnealingLR", "arguments": {}}},
        ),
    ],
)
def test_a_choice_in_their_words_is_the_one_in_ours(theirs, ours):
    assert Choice.read(ours, where="x") == Choice.read(theirs, where="x")


@each_row("given", [3, None, {"options": {}}, {"name": 3}, "plugins.mine:AdamW"])
def test_all_else_is_left_as_it_is(given):
    assert (given if not isinstance(given, str) else {"name": given}) == in_our_words(given)


def test_the_same_words_are_the_same_configuration_wherever_they_stand():
    theirs = TrainingConfiguration(optimizer="SGD", schedule="StepLR", algorithm="PPO")

    assert ("sgd", "torch", "ppo") == (
        theirs.optimizer.name,
        theirs.schedule.name,
        theirs.algorithm.name,
    )


def test_every_name_is_that_of_a_built_in():
    kinds = {"plateau": "schedule", "adam": "optimizer", "adamw": "optimizer"}
    for name in set(NAMES.values()):
        kind = kinds.get(name, "optimizer" if name in {"sgd", "rmsprop", "adagrad"} else "")
        assert resolve(kind or "algorithm", name)


def test_every_kind_is_one_of_the_schedules_of_that_name():
    known = get_args(TransformersSchedule.Options.model_fields["kind"].annotation)
    arguments = {"StepLR": {"step_size": 1}, "MultiStepLR": {"milestones": [1]}} | {
        "ExponentialLR": {"gamma": 0.5},
        "CosineAnnealingWarmRestarts": {"T_0": 2},
    }

    assert set(KINDS) <= set(known)
    for kind in get_args(TorchKind):
        choice = Choice.read({"name": kind, "options": arguments.get(kind, {})}, where="x")
        assert kind == read_options("schedule", choice).kind
