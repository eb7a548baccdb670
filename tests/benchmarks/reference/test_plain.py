"""The tree sampler beside the plain way: one recursion, one context at a time, nothing kept."""

from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import tiny_language_model, tiny_prompts, tiny_system
from benchmarks.reference.plain import plain_rollout, share_of_differing_tokens

SHORT = GenerationConfiguration(max_new_tokens=6)
PROMPTS = tiny_prompts(2)

EXACT = ("path", "context_ids", "truncated_tokens", "probe_text", "probe_ids", "probe_mask")
EXACT += ("response_texts", "response_ids", "response_scores", "score", "probe_score", "failure")
ROUNDED = ("probe_logprobs", "reference_logprobs", "target_logprobs")


def system_of(*, probe=SHORT, response=SHORT, limit=96, separator=None, **parts):
    config = SystemConfiguration(
        max_context_tokens=limit,
        probe=probe,
        response=response,
        tokens_per_batch=512,
        separator=separator,
    )
    return tiny_system(config=config, **parts)


def both(system, *, width=2, depth=2, num_responses=1, seed=5, iteration=2):
    """Our trees and the plain ones, of the same keys."""
    shape = {"tree_width": width, "tree_depth": depth, "num_responses": num_responses}
    sampler = TreeSampler(
        TreeSampler.Options(**shape),
        system=system,
        prompts=PROMPTS,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=seed,
    )
    ours = sampler.roll_out(PROMPTS, iteration=iteration)
    return ours, plain_rollout(system, PROMPTS, **shape, seed=seed, iteration=iteration)


def assert_same(ours, plain):
    share = share_of_differing_tokens(ours, plain)
    print(f"share of tokens that differ: {share:.2e}")  # noqa: T201 - shown with -s
    assert share == 0.0
    for graph, other in zip(ours, plain, strict=True):
        assert (graph.prompt, graph.iteration) == (other.prompt, other.iteration)
        for node, twin in zip(graph.nodes(), other.nodes(), strict=True):
            assert [getattr(twin, name) for name in EXACT] == [
                getattr(node, name) for name in EXACT
            ]
            for name in ROUNDED:
                assert pytest.approx(getattr(twin, name), rel=1e-4, abs=1e-5) == getattr(node, name)


GENERATIONS = {
    "all tokens": {},
    "cold": {"temperature": 0.7},
    "hot": {"temperature": 1.5},
    "top-k": {"top_k": 5},
    "top-p": {"top_p": 0.8},
    "top-k, then top-p": {"top_k": 6, "top_p": 0.9},
    "min-p": {"min_p": 0.2},
    "repetition penalty": {"repetition_penalty": 1.4},
    "late end": {"min_new_tokens": 6},
    "everything": {
        "temperature": 0.8,
        "top_k": 9,
        "top_p": 0.95,
        "min_p": 0.02,
        "repetition_penalty": 1.2,
        "min_new_tokens": 3,
    },
}


def assert_said_alike(name, kind="llama"):
    generation = GenerationConfiguration(max_new_tokens=6, **GENERATIONS[name])

    assert_same(*both(system_of(probe=generation, response=generation, kind=kind)))


@pytest.mark.real
def test_plain_rollout_says_what_the_tree_sampler_says():
    assert_said_alike("everything")


@pytest.mark.wide
@each_row("name", GENERATIONS)
def test_plain_rollout_says_the_same_by_every_setting(name):
    assert_said_alike(name)


@pytest.mark.wide
@each_row("name", GENERATIONS)
def test_plain_rollout_says_the_same_of_another_architecture(name):
    assert_said_alike(name, "gpt2")


@pytest.mark.real
@each_row(("width", "depth", "num_responses"), [(1, 1, 1), (1, 3, 2), (3, 2, 1)])
def test_plain_rollout_grows_the_same_tree(width, depth, num_responses):
    ours, plain = both(system_of(), width=width, depth=depth, num_responses=num_responses)

    assert_same(ours, plain)
    assert sum(width**turn for turn in range(1, depth + 1)) == len(list(plain[0].nodes()))


@pytest.mark.wide
@each_row(
    "parts",
    lambda: [
        {"limit": 9},
        {"separator": "so now"},
        {"reference_seed": 3},
        {"target": tiny_language_model(9, vocabulary=None)},
    ],
)
def test_plain_rollout_agrees_however_the_models_are_related(parts):
    assert_same(*both(system_of(**parts)))


@pytest.mark.wide
@each_row(
    "parts",
    lambda: [
        {"limit": 8, "probe": GenerationConfiguration(max_new_tokens=12)},
        {"limit": 120, "probe": GenerationConfiguration(max_new_tokens=116)},
        {"separator": "so"},
        {"target": tiny_language_model(9)},
    ],
)
def test_plain_rollout_agrees_with_long_probes_and_another_target(parts):
    assert_same(*both(system_of(**parts)))


@pytest.mark.real
def test_utterances_that_are_compared_end_early_and_late():
    ours, _ = both(system_of(probe=GenerationConfiguration(max_new_tokens=12)), depth=3)
    lengths = {len(node.probe_ids) for graph in ours for node in graph.nodes()}

    assert len(lengths) > 2


@pytest.mark.wide
def test_another_key_says_something_else():
    system = system_of()

    assert share_of_differing_tokens(both(system)[0], both(system, seed=6)[1]) > 0.1
    assert share_of_differing_tokens(both(system)[0], both(system, iteration=3)[1]) > 0.1


def test_native_draws_leave_scores_of_the_probe_to_the_update():
    (graph,) = plain_rollout(
        system_of(), PROMPTS[:1], tree_width=2, tree_depth=2, num_responses=1, draws="native"
    )

    for node in graph.nodes():
        assert ((), ()) == (node.probe_logprobs, node.reference_logprobs)
        assert len(node.probe_ids) == len(node.target_logprobs)


def test_share_of_differing_tokens_counts_a_missing_token():
    ours, _ = both(system_of(), width=1, depth=1)
    assert share_of_differing_tokens(ours, ours) == 0.0

    (node,) = ours[0].children
    shorter = replace(node.probe, token_ids=node.probe_ids[:-1])
    others = [replace(ours[0], children=(replace(node, probe=shorter),))]
    total = len(node.probe_ids) + len(node.response_ids[0])

    assert share_of_differing_tokens(ours[:1], others) == pytest.approx(1 / total)
