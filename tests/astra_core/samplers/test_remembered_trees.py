"""What a sampler remembers saves reading and changes nothing."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from each_row import each_row, wide_but
from tiny_architectures import tiny_speaker

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.targets.causal_lm import as_target
from astra_parts.testing import tiny_language_model, tiny_prompts, tiny_system
from benchmarks.reference.plain import plain_rollout, share_of_differing_tokens

PROMPTS = tiny_prompts(2)
SHAPES = [
    {"tree_width": 2, "tree_depth": 2, "num_responses": 2},
    {"tree_width": 2, "tree_depth": 3, "num_responses": 1},
    {"tree_width": 1, "tree_depth": 4, "num_responses": 2},
]


def config(**changes):
    short = GenerationConfiguration(max_new_tokens=6)
    settings = {"max_context_tokens": 100, "probe": short, "response": short}
    return SystemConfiguration(**{**settings, "tokens_per_batch": 2048, **changes})


def with_settings(system, **changes):
    return replace(system, config=system.config.model_copy(update=changes))


def rolled_out(system, prompts=PROMPTS, *, seed=1, **shape):
    sampler = TreeSampler(
        TreeSampler.Options(**{**SHAPES[0], **shape}),
        system=system,
        prompts=prompts,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=seed,
    )
    return sampler.roll_out(prompts, iteration=0)


def tokens(graphs):
    return [
        [(node.context_ids, node.probe_ids, node.response_ids) for node in graph.nodes()]
        for graph in graphs
    ]


def logprobs(graphs):
    return [
        value
        for graph in graphs
        for node in graph.nodes()
        for own in (node.probe_logprobs, node.target_logprobs, node.reference_logprobs)
        for value in own
    ]


def gemma():
    """Attacker, target and reference of one model with layers that look back four tokens."""
    return tiny_system(target=tiny_speaker("gemma3", seed=3), config=config())


SYSTEMS = {
    "one model": lambda: tiny_system(config=config()),
    "gpt2": lambda: tiny_system(kind="gpt2", config=config()),
    "three models": lambda: tiny_system(
        reference_seed=4, target=tiny_language_model(9), config=config()
    ),
    "another tokenizer": lambda: tiny_system(
        target=tiny_language_model(9, vocabulary=None), config=config()
    ),
    "windows": gemma,
    "no masks": lambda: tiny_system(target=tiny_speaker("bloom", seed=3), config=config()),
    "cut contexts": lambda: tiny_system(config=config(max_context_tokens=14)),
    "two separators": lambda: tiny_system(config=config(separator="so now")),
}


QUICK = ("another tokenizer", "windows", "cut contexts")


@pytest.fixture(params=wide_but(SYSTEMS, *QUICK), scope="module")
def system(request):
    return SYSTEMS[request.param]()


@contextmanager
def counted(*models):
    """Notes how many tokens the models read."""
    read = []
    handles = [
        own.model.base_model.register_forward_pre_hook(
            lambda _, given, named: read.append((given or (named["input_ids"],))[0].numel()),
            with_kwargs=True,
        )
        for own in {id(model): model for model in models}.values()
    ]
    try:
        yield read
    finally:
        for handle in handles:
            handle.remove()


def test_tokens_are_those_of_the_plain_way_whatever_is_remembered(system):
    assert_plain_with(system, SHAPES[0], (0, 1024))


@pytest.mark.wide
@each_row("shape", SHAPES[1:])
def test_tokens_of_other_shapes_are_those_of_the_plain_way_too(system, shape):
    assert_plain_with(system, shape, (0, 1, 1024))


def assert_plain_with(system, shape, memories):
    expected = plain_rollout(system, PROMPTS, seed=1, **shape)
    for memory in memories:
        found = rolled_out(with_settings(system, prefix_cache_mib=memory), **shape)

        assert 0.0 == share_of_differing_tokens(expected, found)
        assert tokens(expected) == tokens(found)


@pytest.mark.real
def test_budget_order_and_company_change_nothing_with_a_memory(system):
    expected = rolled_out(with_settings(system, prefix_cache_mib=0))
    for budget in (60, 10**6):
        found = rolled_out(with_settings(system, tokens_per_batch=budget))
        assert tokens(expected) == tokens(found)
        assert logprobs(expected) == pytest.approx(logprobs(found), abs=1e-4)
    alone = [rolled_out(system, [prompt])[0] for prompt in PROMPTS]
    turned = rolled_out(system, PROMPTS[::-1])[::-1]

    assert tokens(expected) == tokens(alone) == tokens(turned)


@pytest.mark.real
@each_row(
    ("name", "depth", "share"),
    [
        ("gpt2", 4, 0.5),
        # Its contexts are in bytes: deeper ones would be cut, and nothing begins as it did then.
        ("another tokenizer", 3, 0.9),
    ],
)
def test_less_is_read_with_a_memory(name, depth, share):
    system, read = SYSTEMS[name](), {}
    for memory in (0, 1024):
        with counted(system.attacker, system.target.language_model) as own:
            remembering = with_settings(system, prefix_cache_mib=memory)
            rolled_out(remembering, PROMPTS[:1], tree_depth=depth, num_responses=1)
        read[memory] = sum(own)

    assert read[1024] < share * read[0]


def test_of_a_context_all_but_what_was_sampled_or_heard_is_read_once():
    # One path, no forks: every later turn begins where the last one ended.
    system = tiny_system(reference_seed=4, target=tiny_language_model(9), config=config())
    with counted(system.target.language_model) as read:
        (graph,) = rolled_out(system, PROMPTS[:1], tree_width=1, tree_depth=6, num_responses=1)
    nodes = list(graph.nodes())
    said = sum(len(node.probe_ids) + len(node.response_ids[0]) for node in nodes)
    # A separator after each that was cut off, the prompt, and the token before each probe: the
    # first of its log-probabilities comes from there.
    assert sum(read) <= said + 3 * len(nodes) + len(nodes[0].context_ids)


@pytest.mark.real
def test_a_short_memory_forgets_and_changes_nothing():
    speakers = [
        tiny_speaker("gpt2", seed=seed, n_embd=512, n_layer=4, initializer_range=0.05)
        for seed in (1, 2)
    ]
    system = tiny_system(target=speakers[0], config=config())
    system = replace(system, attacker=speakers[1])
    read, found = {}, {}
    for memory in (0, 1, 1024):
        with counted(*speakers) as own:
            found[memory] = tokens(rolled_out(with_settings(system, prefix_cache_mib=memory)))
        read[memory] = sum(own)

    # Keys and values of a token take 16 KiB, so that one MiB holds 64 of them.
    assert found[0] == found[1] == found[1024]
    assert read[1024] < read[1] <= read[0]


def test_nothing_is_remembered_when_weights_change():
    system = tiny_system(reference_seed=4, config=config())
    rolled_out(system, PROMPTS[:1])
    with torch.no_grad():
        for weight in system.attacker.model.parameters():
            weight.add_(
                0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
            )
    found = rolled_out(system, PROMPTS[:1])

    assert tokens(plain_rollout(system, PROMPTS[:1], seed=1, **SHAPES[0])) == tokens(found)


def test_a_scope_ends_with_its_memory_also_after_an_error():
    system = tiny_system(config=config())
    context = tuple(2 + index % 17 for index in range(40))
    short = GenerationConfiguration(max_new_tokens=1)

    def tokens_read():
        with counted(system.target.language_model) as read:
            system.target.language_model.continuations([context], [[b"a" * 16]], short)
        return sum(read)

    with system.remembering():
        assert tokens_read() == 40
        assert tokens_read() == 1
    assert tokens_read() == 40
    with pytest.raises(RuntimeError, match="0 elements"), system.remembering():
        system.target.language_model.continuations([()], [[b"a" * 16]], short)
    assert tokens_read() == 40
    with system.remembering():
        assert tokens_read() == 40


@pytest.mark.real
@pytest.mark.wide
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_fewer_than_one_token_in_ten_thousand_differs_by_rounding(kind, record_testsuite_property):
    # Rounding of sums in another order may move a draw across an edge; then the rest differs too.
    num_tokens = differing = 0.0
    long = GenerationConfiguration(max_new_tokens=24, min_new_tokens=12)
    settings = config(max_context_tokens=200, probe=long, response=long, tokens_per_batch=16384)
    for seed in range(6):
        reference = tiny_language_model(seed, kind=kind, max_positions=256)
        attacker = tiny_language_model(seed + 50, kind=kind, max_positions=256)
        system = replace(
            tiny_system(kind=kind, config=settings),
            target=as_target(reference, settings),
            reference=reference,
            attacker=attacker,
        )
        shape = {"tree_width": 4, "tree_depth": 3, "num_responses": 2}
        prompts = tiny_prompts(6)
        found = rolled_out(system, prompts, seed=seed, **shape)
        plain = rolled_out(with_settings(system, prefix_cache_mib=0), prompts, seed=seed, **shape)
        count = sum(
            len(node.probe_ids) + sum(map(len, node.response_ids))
            for graph in found
            for node in graph.nodes()
        )
        num_tokens += count
        differing += count * share_of_differing_tokens(plain, found)

    record_testsuite_property(f"differing tokens of {kind}", f"{differing:.0f} of {num_tokens:.0f}")
    assert num_tokens > 100_000
    assert differing / num_tokens < 1e-4
