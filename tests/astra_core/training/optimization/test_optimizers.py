import pytest
import torch
import transformers
from each_row import each_row

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import BUILT_INS, build
from astra_core.training.optimization.parts import parameter_groups
from astra_parts.testing import tiny_language_model

STEPS = 12


def gradient(update):
    return 0.3**update * torch.cos(torch.arange(6.0) * (update + 1)).reshape(2, 3)


def weights_after(name, *, lr=0.1, num_updates=4, **options):
    """A matrix after some updates on a fixed course of gradients."""
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
    plugin = build("optimizer", Choice(name=name, options=options))
    groups = [{"params": [weight], "weight_decay": plugin.options.weight_decay}]
    optimizer = plugin.optimizer(groups, lr)
    for update in range(num_updates):
        weight.grad = gradient(update)
        optimizer.step()
    return weight.detach()


def theirs_after(kind, *, num_updates=4, **options):
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
    optimizer = kind([weight], lr=0.1, **options)
    for update in range(num_updates):
        weight.grad = gradient(update)
        optimizer.step()
    return weight.detach()


@each_row(
    ("name", "options", "kind", "theirs"),
    [
        ("adam", {}, torch.optim.Adam, {}),
        ("adamw", {}, torch.optim.AdamW, {"weight_decay": 0.01}),
        ("sgd", {}, torch.optim.SGD, {}),
        ("rmsprop", {}, torch.optim.RMSprop, {}),
        ("adagrad", {}, torch.optim.Adagrad, {}),
        (
            "adam",
            {"beta1": 0.5, "beta2": 0.8, "eps": 0.1, "weight_decay": 0.3, "amsgrad": True},
            torch.optim.Adam,
            {"betas": (0.5, 0.8), "eps": 0.1, "weight_decay": 0.3, "amsgrad": True},
        ),
        (
            "sgd",
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            torch.optim.SGD,
            {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        ),
    ],
)
def test_an_optimizer_is_torchs_own(name, options, kind, theirs):
    torch.testing.assert_close(theirs_after(kind, **theirs), weights_after(name, **options))


MOMENTS = [{"beta1": 0.5}, {"beta2": 0.5}, {"eps": 0.5}, {"weight_decay": 0.5}, {"amsgrad": True}]
CHANGES = {
    "adam": MOMENTS,
    "adamw": MOMENTS,
    "sgd": [{"momentum": 0.5}, {"momentum": 0.5, "nesterov": True}, {"weight_decay": 0.5}],
    "rmsprop": [
        {"alpha": 0.5},
        {"eps": 0.5},
        {"momentum": 0.5},
        {"centered": True},
        {"weight_decay": 0.5},
    ],
    "adagrad": [{"lr_decay": 0.5}, {"eps": 0.5}, {"weight_decay": 0.5}],
}


@each_row(("name", "change"), [(name, change) for name, own in CHANGES.items() for change in own])
def test_every_option_of_every_optimizer_changes_the_update(name, change):
    assert not torch.equal(weights_after(name), weights_after(name, **change))


def test_every_optimizer_and_option_is_covered_here():
    assert set(BUILT_INS["optimizer"]) == set(CHANGES)
    for name, changes in CHANGES.items():
        options = build("optimizer", Choice(name=name)).options
        assert set(type(options).model_fields) == {key for change in changes for key in change}


def test_weight_decay_leaves_biases_and_norms_alone():
    model = tiny_language_model(kind="gpt2", is_trained=True).model
    matrices, vectors = parameter_groups(model, (), weight_decay=0.3)

    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.3, 0.0)
    assert all(parameter.ndim == 2 for parameter in matrices["params"])
    assert all(parameter.ndim == 1 for parameter in vectors["params"])
    grouped = [*matrices["params"], *vectors["params"]]
    assert {id(p) for p in model.parameters()} == {id(p) for p in grouped}
    assert len(grouped) == len(list(model.parameters()))


def test_an_algorithms_own_weights_are_trained_and_frozen_ones_are_not():
    model = tiny_language_model(is_trained=True).model
    frozen = next(model.parameters()).requires_grad_(False)
    own = torch.nn.Parameter(torch.zeros(2))
    grouped = [
        p for group in parameter_groups(model, [own], weight_decay=0.1) for p in group["params"]
    ]

    assert any(parameter is own for parameter in grouped)
    assert not any(parameter is frozen for parameter in grouped)


def test_an_attacker_without_trainable_weights_is_refused():
    with pytest.raises(ConfigurationError, match="attacker must have trainable weights"):
        parameter_groups(tiny_language_model().model, (), weight_decay=0.1)


ARGUMENTS = {
    "cosine_with_min_lr": {"min_lr_rate": 0.1},
    "cosine_warmup_with_min_lr": {"min_lr_rate": 0.1, "warmup_lr_rate": 0.1},
    "warmup_stable_decay": {"num_decay_steps": 4},
    "cosine_with_restarts": {"num_cycles": 2},
    "polynomial": {"power": 2.0},
}
KINDS = [
    "constant",
    "constant_with_warmup",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "cosine_warmup_with_min_lr",
    "polynomial",
    "inverse_sqrt",
    "warmup_stable_decay",
]


def rates(schedule, optimizer, count=STEPS):
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        schedule.step()
    return found


def our_rates(kind, *, warmup_steps, arguments=None, count=STEPS):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    options = {
        "kind": kind,
        "arguments": ARGUMENTS.get(kind, {}) if arguments is None else arguments,
    }
    schedule = build("schedule", Choice(name="transformers", options=options)).schedule(
        optimizer, warmup_steps=warmup_steps, training_steps=STEPS
    )
    return rates(schedule, optimizer, count)


@each_row("warmup_steps", [0, 3])
@each_row("kind", KINDS)
def test_a_schedule_is_that_of_transformers_shifted_by_one_where_it_warms_up(kind, warmup_steps):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    optimizer._opt_called = True
    shift = int(warmup_steps > 0 and kind != "cosine_warmup_with_min_lr")
    theirs = transformers.get_scheduler(
        "constant_with_warmup" if kind == "constant" and warmup_steps else kind,
        optimizer,
        num_warmup_steps=warmup_steps,
        num_training_steps=STEPS + shift,
        scheduler_specific_kwargs=dict(ARGUMENTS.get(kind, {})),
    )
    expected = rates(theirs, optimizer, STEPS + shift)[shift:]

    assert expected == our_rates(kind, warmup_steps=warmup_steps)


@each_row("warmup_steps", [0, 1, 3])
@each_row("kind", KINDS)
def test_no_step_is_wasted_on_a_rate_of_zero(kind, warmup_steps):
    assert all(rate > 0.0 for rate in our_rates(kind, warmup_steps=warmup_steps))


@each_row("kind", KINDS)
def test_warm_up_begins_low_and_ends_at_the_peak(kind):
    found = our_rates(kind, warmup_steps=3)

    assert found[0] < found[1] < found[2]
    assert max(found) == pytest.approx(found[2], rel=0.05)


def test_every_schedule_that_can_be_named_is_covered_here():
    (field,) = [
        field
        for name, field in type(
            build("schedule", Choice(name="transformers")).options
        ).model_fields.items()
        if name == "kind"
    ]

    assert set(KINDS) == set(field.annotation.__args__)


@each_row(
    ("kind", "arguments"),
    [
        ("warmup_stable_decay", {}),
        ("cosine", {"no_such": 1}),
        ("cosine_with_min_lr", {}),
        ("polynomial", {"lr_end": 1.0}),
    ],
)
def test_arguments_that_do_not_suit_a_schedule_are_refused_by_name(kind, arguments):
    with pytest.raises(ConfigurationError, match=rf"must suit '{kind}', got: "):
        our_rates(kind, warmup_steps=0, arguments=arguments)


def test_a_schedule_may_move_before_the_first_update():
    # An experience that teaches nothing makes no update; torch would warn, and warnings are errors.
    assert len(our_rates("linear", warmup_steps=0)) == STEPS
