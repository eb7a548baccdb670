"""Every causal LM of transformers is served, by the quick way or the plain one, with one result."""

import copy
import itertools
from dataclasses import replace

import pytest
import torch
from each_row import each_row
from tiny_architectures import HYBRID, LONE, PLAIN, QUICK, SCALED, tiny_model, tiny_speaker

from astra_core.config import GenerationConfiguration
from astra_core.engine.abilities import Abilities, abilities_of, takes_steps
from astra_core.engine.logprobs import token_logprobs
from astra_core.models.language_model import LanguageModel
from astra_core.models.rows import pad_rows, padded_logits, padded_logprobs
from astra_core.seeding import derive_key
from astra_parts.algorithms.value_head import token_outputs
from benchmarks.reference.plain_passes import plain_generate, plain_logprobs

SHORT = GenerationConfiguration(max_new_tokens=6)
# Most of them longer than the windows; with shared beginnings, and one that another starts with.
CONTEXTS = [(4, 5, 0, 6, 7, 8, 9, 10), (6, 3), (4, 5, 0, 6, 7, 8, 2, 2, 2, 3), (4, 5, 0, 6, 7, 8)]
CONTINUATIONS = [(3, 0), (5,), (), (6, 7, 8)]
KEYS = [[derive_key(1, row, reply) for reply in range(2)] for row in range(len(CONTEXTS))]


# Layers that look back only so far, or attention that nobody can be put in the place of.
STEMLESS = {"qwen2 mixed", "mistral", "mixtral", "gemma3", "falcon rotary"}

# One of every kind: with a stem, with windows, with logits of its own, and read the plain way.
FIRST = ("gpt2", "qwen2 mixed", "cohere", "bloom")
OTHER_CODE = {"llama grouped", "mistral", "opt", "gemma2", "gemma3"}


def tier(name):
    if name in ("gpt2", "bloom"):
        return ()
    return pytest.mark.real if name in {*FIRST, *OTHER_CODE} else pytest.mark.wide


@pytest.fixture(
    params=[pytest.param(name, marks=tier(name)) for name in QUICK | SCALED | PLAIN], scope="module"
)
def name(request):
    return request.param


def said(found):
    return [[utterance.token_ids for utterance in own.utterances] for own in found]


def logprobs_of(found):
    return [
        value
        for own in found
        for utterance in own.utterances
        for value in (*utterance.logprobs, *own.suffix_logprobs)
    ]


# Every one is a module of transformers to import: one of each kind is quick.
ALL = [*QUICK, *SCALED, *PLAIN, *LONE]
SOME = [
    ["gpt2", "qwen2 mixed", "cohere", "bloom", "lfm2"],
    pytest.param(ALL, marks=pytest.mark.real),
]


@pytest.mark.parametrize("names", SOME, ids=["some", "all"])
def test_an_architecture_is_found_out(names):
    expected = {
        **dict.fromkeys(QUICK, Abilities(True, True, True, has_plain_head=True)),
        **dict.fromkeys(STEMLESS, Abilities(True, True, False, has_plain_head=True)),
        **dict.fromkeys(SCALED, Abilities(True, True, True, has_plain_head=False)),
        **dict.fromkeys(LONE, Abilities(False, False, False, has_plain_head=True)),
    }
    expected = {name: expected[name] for name in names if name in expected}

    assert expected == {name: abilities_of(tiny_model(name)) for name in expected}
    for name in set(names) & set(PLAIN):
        found = abilities_of(tiny_model(name))
        assert found.takes_padding
        assert not found.takes_masks
        assert not found.takes_stems


# Roundings of half precision are many times what is allowed in fp32.
@each_row("name", FIRST)
def test_a_model_in_half_precision_keeps_its_abilities(name):
    expected = abilities_of(tiny_model(name))

    for dtype in (torch.bfloat16, torch.float16):
        assert expected == abilities_of(tiny_model(name).to(dtype))


# As SmolLM2-135M does, whose first tokens have very large states.
def test_a_model_that_rounds_more_keeps_its_abilities():
    model = tiny_model("llama untied")
    expected, other = abilities_of(model), copy.deepcopy(model)
    calls = itertools.count()
    head = other.get_output_embeddings()
    head.register_forward_hook(lambda _module, _args, logits: round_off(10 * logits, next(calls)))
    other.config.pad_token_id = 1  # another build, which is tried itself

    assert replace(expected, has_plain_head=False) == abilities_of(other)


# As untrained models are, which say nearly the same whatever they have read.
def test_a_model_that_hardly_tells_tokens_apart_has_no_other_abilities():
    model = copy.deepcopy(tiny_model("llama windowed"))
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(0.01)
    model.config.pad_token_id = 1

    assert not abilities_of(model).takes_masks


def round_off(logits, seed):
    noise = torch.empty_like(logits).uniform_(
        -2e-3, 2e-3, generator=torch.Generator().manual_seed(seed)
    )
    return logits + noise


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "bloom" else pytest.mark.real) for name in PLAIN],
)
def test_a_model_that_is_read_the_plain_way_stays_as_it_was(name):
    model = tiny_model(name)
    ids = torch.tensor([CONTEXTS[0]])
    before, was = model(ids).logits, copy.deepcopy(model.config.to_dict())
    implementation = model.config._attn_implementation
    abilities_of(model)

    assert was == model.config.to_dict()
    assert implementation == model.config._attn_implementation
    assert torch.equal(before, model(ids).logits)


WINDOWED = [
    "llama windowed",
    *(pytest.param(name, marks=pytest.mark.real) for name in ("mistral", "gemma3", "llama4")),
]


@pytest.mark.parametrize("name", WINDOWED)
def test_the_trial_leaves_the_windows_as_they_were(name):
    model = tiny_model(name)
    was = copy.deepcopy(model.config.to_dict())
    abilities_of(model)

    assert was == model.config.to_dict()


@pytest.mark.parametrize("name", WINDOWED[:2])
def test_a_window_too_wide_to_show_in_the_trial_is_kept_all_the_same(name):
    # Eight tokens of a trial say nothing about one of forty, unless it is cut for it.
    context = tuple(2 + index % 17 for index in range(60))
    window = {"sliding_window": 40}
    speaker = tiny_speaker(name, **window)
    expected = plain_generate(speaker, [context], SHORT, keys=KEYS[0][:1])
    (found,) = speaker.continuations([context], [KEYS[0][:1]], SHORT)

    assert expected == [utterance.token_ids for utterance in found.utterances]
    own = speaker.continuation_logprobs([context, context], [(3, 4), (3, 5)])
    rows = pad_rows([context, context], [(3, 4), (3, 5)], pad_id=0)
    with torch.no_grad():
        torch.testing.assert_close(plain_logprobs(speaker.model, rows), torch.tensor(own))


def test_what_is_found_out_is_asked_once():
    model = tiny_model("llama tied")
    calls = []
    abilities_of(model)
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    abilities_of(model)

    assert [] == calls


def test_the_trial_leaves_no_gradient_and_no_random_number():
    model = tiny_model("llama tied")
    torch.manual_seed(3)
    state = torch.get_rng_state()
    abilities_of(model)

    assert torch.equal(state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_tokens_are_those_of_the_plain_way_alone_together_and_from_memory(name):
    speaker = tiny_speaker(name)
    suffixes = [min(3, len(context) - 1) for context in CONTEXTS]
    expected = [
        plain_generate(speaker, [context] * len(own), SHORT, keys=own)
        for context, own in zip(CONTEXTS, KEYS, strict=True)
    ]
    together = speaker.continuations(CONTEXTS, KEYS, SHORT, suffix_lengths=suffixes)
    alone = [
        speaker.continuations([context], [own], SHORT, suffix_lengths=[suffix])[0]
        for context, own, suffix in zip(CONTEXTS, KEYS, suffixes, strict=True)
    ]
    with speaker.remembering(1 << 20):
        speaker.continuations([context[:2] for context in CONTEXTS], [()] * len(CONTEXTS), SHORT)
        first = speaker.continuations(CONTEXTS, KEYS, SHORT, suffix_lengths=suffixes)
        again = speaker.continuations(CONTEXTS[::-1], KEYS[::-1], SHORT)[::-1]

    for found in (together, alone, first, again):
        assert expected == said(found)
    for found in (alone, first):
        assert logprobs_of(together) == pytest.approx(logprobs_of(found), abs=1e-4)


def test_turns_that_follow_each_other_are_remembered_rightly(name):
    # Each turn goes on from the last one: keys and values of sampled tokens are used again.
    speaker = tiny_speaker(name)
    contexts = list(CONTEXTS)
    with speaker.remembering(1 << 20):
        for _ in range(3):
            expected = [
                plain_generate(speaker, [context], SHORT, keys=own[:1])[0]
                for context, own in zip(contexts, KEYS, strict=True)
            ]
            found = speaker.continuations(contexts, [own[:1] for own in KEYS], SHORT)
            assert expected == [own[0] for own in said(found)]
            contexts = [
                (*context, *own, 5) for context, own in zip(contexts, expected, strict=True)
            ]


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {
        key: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()
        for key, weight in model.named_parameters()
    }


def test_log_probabilities_and_gradients_are_those_of_padded_rows(name):
    model = tiny_model(name)
    rows = pad_rows(CONTEXTS, CONTINUATIONS, pad_id=0)
    weights = torch.linspace(-1.0, 2.0, rows.continuation_ids.numel())
    weights = weights.view(rows.continuation_ids.shape)
    own, padded = token_logprobs(model, rows), padded_logprobs(model, rows)
    expected, found = (gradients(model, (values * weights).sum()) for values in (padded, own))

    torch.testing.assert_close(padded, own, rtol=0.0, atol=1e-4)
    size = max(float(gradient.abs().max()) for gradient in expected.values())
    for key, gradient in expected.items():
        torch.testing.assert_close(gradient, found[key], rtol=0.0, atol=1e-4 * size)


def test_states_and_entropies_are_those_of_padded_rows(name):
    if name == "llama4":
        pytest.skip("its base_model is the whole model, which gives no hidden states")
    model = tiny_model(name)
    rows = pad_rows(CONTEXTS, CONTINUATIONS, pad_id=0)
    with torch.no_grad():
        output = token_outputs(model, rows, with_entropies=True)
        whole = model.base_model(
            input_ids=rows.input_ids,
            attention_mask=rows.attention_mask,
            position_ids=rows.position_ids,
        ).last_hidden_state
        shares = padded_logits(model, rows).softmax(dim=2)

    tail, mask = rows.continuation_ids.shape[1], rows.continuation_mask
    states = whole[:, -(tail + 1) :]
    ends = mask.sum(dim=1)
    torch.testing.assert_close(states[:, :-1][mask], output.states[mask], rtol=1e-4, atol=1e-4)
    final = states[torch.arange(len(ends)), ends]
    torch.testing.assert_close(final, output.final_states, rtol=1e-4, atol=1e-4)
    entropies = -torch.xlogy(shares, shares).sum(dim=2)
    torch.testing.assert_close(entropies[mask], output.entropies[mask], rtol=0.0, atol=1e-4)
    expected = padded_logprobs(model, rows).detach()
    torch.testing.assert_close(expected, output.logprobs, rtol=0.0, atol=1e-4)


def test_bfloat16_weights_are_served():
    model = tiny_model("llama tied").to(torch.bfloat16)
    speaker = LanguageModel(model, tiny_speaker("llama tied").tokenizer)
    found = speaker.continuations(CONTEXTS, KEYS, SHORT)

    assert all(utterance.token_ids for own in found for utterance in own.utterances)


def alone(model, context, continuation):
    """Log-probability of each token of a sequence that nothing pads."""
    logits = model(input_ids=torch.tensor([[*context, *continuation]]), use_cache=False).logits[0]
    labels = torch.tensor(continuation, dtype=torch.long)
    ends = logits[len(context) - 1 : -1].log_softmax(dim=1)
    return ends.gather(1, labels[:, None])[:, 0]


STATES = [
    *(pytest.param(name, marks=[] if name == "lfm2" else pytest.mark.real) for name in LONE),
    *(pytest.param(name, marks=pytest.mark.wide) for name in HYBRID),
]


@pytest.mark.parametrize("name", STATES)
def test_a_model_that_keeps_a_state_says_the_same_alone_and_among_others(name):
    speaker = tiny_speaker(name)
    suffixes = [1] * len(CONTEXTS)
    together = speaker.continuations(CONTEXTS, KEYS, SHORT, suffix_lengths=suffixes)
    single = [
        speaker.continuations([context], [own], SHORT)[0]
        for context, own in zip(CONTEXTS, KEYS, strict=True)
    ]

    assert said(together) == said(single)
    assert len({ids for own in said(together) for ids in own}) > len(CONTEXTS)
    for context, own in zip(CONTEXTS, together, strict=True):
        last = alone(speaker.model, context[:-1], context[-1:]).tolist()
        assert last == pytest.approx(own.suffix_logprobs, abs=1e-5)
        for utterance in own.utterances:
            expected = alone(speaker.model, context, utterance.token_ids).tolist()
            assert expected == pytest.approx(utterance.logprobs, abs=1e-5)


@pytest.mark.parametrize("name", STATES)
def test_a_model_that_keeps_a_state_learns_from_rows_that_nothing_pads(name):
    model = tiny_model(name)
    rows = pad_rows(CONTEXTS, CONTINUATIONS, pad_id=0)
    weights = torch.linspace(0.5, 1.5, rows.continuation_mask.numel())
    weights = weights.view(rows.continuation_mask.shape)

    def gradient(loss):
        model.zero_grad()
        loss.backward()
        return [own.grad.clone() for own in model.parameters() if own.grad is not None]

    found = token_logprobs(model, rows)
    parts = [
        (alone(model, context, own) * weights[row, : len(own)]).sum()
        for row, (context, own) in enumerate(zip(CONTEXTS, CONTINUATIONS, strict=True))
    ]
    expected = gradient(torch.stack(parts).sum())
    rounding = 1e-5 * max(1.0, *(float(own.abs().max()) for own in expected))
    for first, second in zip(expected, gradient((found * weights).sum()), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=rounding)
    outputs = token_outputs(model, rows, with_entropies=True)
    torch.testing.assert_close(found, outputs.logprobs)
    assert outputs.final_states.isfinite().all()


# Windows and states of recurrent layers are not in a table of slots.
@each_row(
    ("name", "expected"),
    [
        *[(name, True) for name in ("gpt2", "llama grouped", "qwen3", "phi", "cohere")],
        *[(name, False) for name in ("mistral", "gemma3", "bloom", "mamba")],
    ],
)
def test_a_model_that_draws_the_same_takes_steps(name, expected):
    assert expected == takes_steps(tiny_model(name))


def test_half_precision_takes_what_full_precision_takes():
    for dtype in (torch.bfloat16, torch.float16):
        assert takes_steps(tiny_model("llama grouped").to(dtype))
