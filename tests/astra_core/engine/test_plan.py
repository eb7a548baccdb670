"""The plan says what is done: its line is parsed by people, its routes are taken by the engine."""

from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from each_row import each_row
from tiny_architectures import tiny_model
from tiny_training import configured, trainer_of, weights_of

from astra_core.config import LoraConfiguration
from astra_core.engine.logprobs import continuation_states, token_logprobs
from astra_core.engine.machine import Machine
from astra_core.engine.plan import Plan, _missed_pins, recompute
from astra_core.engine.products.split_linear import SplitLinear
from astra_core.engine.products.split_product import MIN_ROWS
from astra_core.models.lora import add_adapters
from astra_core.models.rows import pad_rows
from astra_parts.testing import tiny_language_model

pytestmark = pytest.mark.routes

AMX = Machine("cpu", "AMX", "split", frozenset({torch.float32}), keeps_freed_memory=True)
BARE = Machine("cpu", "AVX2, no bf16 units, no AMX", "plain", frozenset(), num_threads=2)
ROWS = pad_rows([(4, 5, 6, 7)] * 3, [(3, 0), (3, 5), (2,)], pad_id=0)


def test_the_line_of_a_model_says_every_route():
    plan = Plan.of(tiny_model("gpt2", n_embd=32, n_layer=2), AMX)

    assert str(plan) == (
        f"{plan.model} on cpu (AMX): reads packed trees; "
        "keys and values cached, those of stems once; "
        "products fp32 split into bf16, weights packed to talk; "
        "talks in fp32, learns in fp32; freed memory kept; 1 thread"
    )
    assert plan.model.startswith("gpt2 ")


@each_row(
    ("name", "machine", "expected"),
    [
        ("bloom", BARE, "reads padded rows; keys and values cached; products fp32; "),
        ("mamba", BARE, "reads single rows; nothing cached; products fp32; "),
        ("mistral", AMX, "reads packed trees; keys and values cached; products fp32 split"),
    ],
)
def test_the_line_follows_abilities_and_machine(name, machine, expected):
    assert expected in Plan.of(tiny_model(name), machine).describe()


def test_the_line_says_what_a_run_asks_for():
    plan = Plan.of(tiny_model("gpt2"), BARE).talking(precision="bf16")
    line = plan.learning(precision="bf16", recomputes=True).describe()

    assert line.endswith(
        "talks in bf16, learns in bf16; activations recomputed; freed memory given back; 2 threads"
    )


def test_a_compiled_update_takes_no_route_that_is_a_switch():
    plan = Plan.of(tiny_model("gpt2", n_embd=32, n_layer=2), replace(BARE, route="fast"))
    compiled = plan.learning(precision="fp32", recomputes=False, compiles=True)

    assert ("fast", "plain") == (plan.route, compiled.route)
    assert "fast route" in str(plan)
    assert "fast route" not in str(compiled)


def test_a_plan_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Plan.of(tiny_model("gpt2"), BARE).recomputes = True


@each_row(
    ("sizes", "expected"),
    [({"n_embd": 8, "n_layer": 1}, "K"), ({"n_embd": 320, "n_layer": 2}, "M")],
)
def test_sizes_are_reported_in_words(sizes, expected):
    model = tiny_model("gpt2", **sizes)
    number = Plan.of(model, BARE).model.removeprefix("gpt2 ").removesuffix(expected)
    unit = {"K": 10**3, "M": 10**6}[expected]

    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(
        float(number) * unit, rel=0.06
    )


def test_the_threads_are_those_asked_for_or_those_a_model_is_worth():
    model = tiny_model("gpt2")

    assert 2 == Plan.of(model, BARE).num_threads
    assert 1 == Plan.of(model, AMX).num_threads


def test_a_plan_without_masks_reads_the_plain_way_with_the_same_result():
    model = tiny_model("gpt2")
    plan = Plan.of(model)
    plain = replace(plan, abilities=replace(plan.abilities, takes_masks=False, takes_stems=False))
    read = []
    handle = model.base_model.register_forward_pre_hook(
        lambda _module, _args, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    with torch.no_grad():
        packed, padded = (continuation_states(model, ROWS, plan=own) for own in (plan, plain))
        values = [token_logprobs(model, ROWS, plan=own) for own in (plan, plain)]
    handle.remove()

    # Four tokens are shared, and the first of two continuations; padded rows are three of six.
    assert [8, 18, 8, 18] == read
    torch.testing.assert_close(packed[:, 0], padded[:, 0], rtol=0.0, atol=1e-4)
    torch.testing.assert_close(*values, rtol=0.0, atol=1e-4)


def test_a_model_takes_the_routes_of_the_plan_while_it_learns():
    model = tiny_model("gpt2", n_embd=512, n_layer=1, n_positions=MIN_ROWS)

    def kinds(plan):
        with plan.learns(model):
            own = [vars(module).get("forward") for module in model.modules()]
            return {type(forward) for forward in own if forward is not None}

    plan = Plan.of(model, AMX)
    assert {SplitLinear} == kinds(plan)
    assert set() == kinds(plan.learning(precision="bf16", recomputes=False))
    assert set() == kinds(Plan.of(model, BARE))


def test_activations_are_recomputed_where_the_plan_says_so():
    model, layer_calls = tiny_model("gpt2"), []
    layer = model.base_model.h[0].mlp
    layer.register_forward_pre_hook(lambda *_: layer_calls.append(1))
    plan = Plan.of(model, BARE)
    layer_calls.clear()
    for recomputes, expected in ((False, 1), (True, 2)):
        layer_calls.clear()
        with plan.learning(precision="fp32", recomputes=recomputes).learns(model):
            token_logprobs(model, ROWS, plan=plan).sum().backward()
        assert expected == len(layer_calls)


@each_row(("precision", "expected"), [("fp32", False), ("bf16", True)])
def test_an_update_is_under_autocast_in_bf16_only(precision, expected):
    plan = Plan.of(tiny_model("gpt2"), BARE).learning(precision=precision, recomputes=False)
    with plan.autocast():
        assert expected == torch.is_autocast_enabled("cpu")


def test_a_model_that_speaks_takes_the_machine_it_is_given():
    speaker = tiny_language_model(1)
    own = type(speaker)(speaker.model, speaker.tokenizer, machine=BARE)

    assert BARE == own.plan.machine
    with own.plan.talks(own.model):
        layers = [module for module in own.model.modules() if isinstance(module, torch.nn.Linear)]
        assert layers
        assert not [layer for layer in layers if "forward" in vars(layer)]


@each_row("kind", ["llama", "gpt2"])
def test_layers_are_computed_again_in_the_backward_pass_and_there_alone(kind):
    model = tiny_language_model(kind=kind, is_trained=True).model
    counts = []
    part = next(module for name, module in model.named_modules() if name.endswith("mlp"))
    part.register_forward_pre_hook(lambda *_: counts.append(torch.is_grad_enabled()))
    ids = torch.tensor([[4, 5, 6]])
    for is_recomputed in (False, True):
        counts.clear()
        if is_recomputed:
            with recompute(model):
                model(input_ids=ids, use_cache=False).logits.sum().backward()
        else:
            model(input_ids=ids, use_cache=False).logits.sum().backward()
        assert (2 if is_recomputed else 1) == len(counts)
    with torch.no_grad():
        model(input_ids=ids, use_cache=True)

    assert 3 == len(counts)
    assert not any(module.training for module in model.modules())


@each_row("lora", [None, LoraConfiguration(rank=2)])
def test_recomputation_changes_no_gradient(lora):
    model = tiny_language_model(is_trained=True).model
    if lora:
        add_adapters(model, lora, seed=0)

    def gradients():
        model.zero_grad()
        model(input_ids=torch.tensor([[4, 5, 6, 7]]), use_cache=False).logits.logsumexp(
            dim=2
        ).sum().backward()
        return [own.grad for own in model.parameters() if own.requires_grad]

    expected = gradients()
    with recompute(model):
        assert all(map(torch.equal, expected, gradients()))


@pytest.mark.real
def test_recomputation_changes_no_weight():
    runs = []
    for is_on in (False, True):
        config = configured(gradient_checkpointing=is_on, lora={"rank": 2}, training_steps=1)
        runs.append(trainer_of(config, is_evaluated=False))
        runs[-1].train()

    assert weights_of(runs[0]) == weights_of(runs[1])


def test_the_line_names_a_library_that_the_routes_were_not_tried_with(monkeypatch):
    plan = Plan.of(tiny_model("gpt2", n_embd=32, n_layer=2), BARE)
    assert "instead of" not in plan.describe()
    monkeypatch.setattr("astra_core.engine.plan.version", lambda _: "5.17.0")
    _missed_pins.cache_clear()
    try:
        assert "transformers 5.17.0 instead of <6,>=5.23" in plan.describe()
    finally:
        _missed_pins.cache_clear()
