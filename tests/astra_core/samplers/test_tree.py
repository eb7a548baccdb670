import math
from dataclasses import replace

import pytest
import torch
from each_row import each_row, wide_but

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.errors import PluginError, RolloutError, TargetError
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Failure
from astra_core.samplers.tree import TreeSampler
from astra_core.targets.causal_lm import CausalLM
from astra_parts.scorers.phrases import PhraseScorer
from astra_parts.testing import tiny_language_model, tiny_prompts, tiny_system

PROMPTS = tiny_prompts(4)
# Of a log-probability in nats, ten times what any processor's products were off by; another
# context or another policy is off by a hundredth at least.
ROUNDING = 1e-4
SHORT = GenerationConfiguration(max_new_tokens=6)


def config(**changes):
    settings = {
        "max_context_tokens": 64,
        "probe": SHORT,
        "response": SHORT,
        "tokens_per_batch": 512,
    }
    return SystemConfiguration(**{**settings, **changes})


def sampler(system=None, *, limit=0.05, seed=1, **options):
    return TreeSampler(
        TreeSampler.Options(**{"tree_width": 3, "tree_depth": 2, "num_responses": 2, **options}),
        system=system or tiny_system(),
        prompts=PROMPTS,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=seed,
        max_failed_fraction=limit,
    )


EXACT = ("path", "context_ids", "truncated_tokens", "probe_text", "probe_ids", "probe_mask")
EXACT += ("response_texts", "response_ids", "response_scores", "score", "probe_score")
ROUNDED = ("probe_logprobs", "reference_logprobs", "target_logprobs")


def exact(graphs):
    return [[[getattr(n, name) for name in EXACT] for n in graph.nodes()] for graph in graphs]


def assert_same(graphs, others):
    """Equal, but for the rounding of log-probabilities."""
    assert exact(graphs) == exact(others)
    for graph, other in zip(graphs, others, strict=True):
        for node, twin in zip(graph.nodes(), other.nodes(), strict=True):
            for name in ROUNDED:
                assert getattr(node, name) == pytest.approx(getattr(twin, name), abs=ROUNDING)


def cut_short(most, **changes):
    return tiny_system(config=config(max_context_tokens=most, **changes))


SYSTEMS = {
    "one model": tiny_system,
    "another target": lambda: tiny_system(target=tiny_language_model(9)),
    "another tokenizer": lambda: tiny_system(target=tiny_language_model(9, vocabulary=None)),
    "gpt2": lambda: tiny_system(kind="gpt2"),
    "separator of one token": lambda: tiny_system(config=config(separator="so")),
    "separator of two tokens": lambda: tiny_system(config=config(separator="so now")),
    "short contexts": lambda: cut_short(9),
    "attacker reads less than target": lambda: replace(
        tiny_system(), attacker=tiny_language_model(max_positions=16, is_trained=True)
    ),
    "shorter than a probe": lambda: cut_short(8, probe=GenerationConfiguration(max_new_tokens=12)),
}
"""Every way in which the three models may be related."""
QUICK = ("another tokenizer", "separator of two tokens", "attacker reads less than target")


@pytest.fixture(params=wide_but(SYSTEMS, *QUICK), scope="module")
def system(request):
    return SYSTEMS[request.param]()


@pytest.fixture(scope="module")
def graphs(system):
    """Three turns of two prompts: what one rollout says is looked at from all sides."""
    return sampler(system, tree_depth=3, tree_width=2).roll_out(PROMPTS[:2], iteration=0)


@pytest.fixture(scope="module")
def plain():
    """Two turns of one model, which other rollouts are compared with."""
    return sampler().roll_out(PROMPTS[:2], iteration=0)


@each_row(("width", "depth", "num_nodes"), [(1, 1, 1), (3, 2, 12), (2, 3, 14)])
def test_every_turn_has_as_many_children_as_the_tree_is_wide(width, depth, num_nodes):
    own = sampler(tree_width=width, tree_depth=depth, num_responses=1)
    graphs = own.roll_out(PROMPTS[:2], iteration=0)

    assert [num_nodes] * 2 == [len(list(graph.nodes())) for graph in graphs]
    assert own.has_siblings == (width > 1)
    for graph in graphs:
        assert {len(group) for group in graph.groups()} == {width}
        assert {len(path) for path in graph.paths()} == {depth}
        paths = [node.path for node in graph.nodes()]
        assert paths == sorted(paths, key=lambda path: (len(path), path))
        assert all(
            child.path == (*node.path, index)
            for node in graph.nodes()
            for index, child in enumerate(node.children)
        )


def test_refills_are_of_training_and_replace_what_is_cut_or_repeated():
    shape = {"tree_width": 6, "tree_depth": 1}
    own = sampler(**shape, refills=40)
    plain = sampler(**shape).roll_out(PROMPTS[:1], iteration=0)
    graphs = own.roll_out(PROMPTS[:1], iteration=0)
    end = own.system.attacker.separator_ids

    def poor(graphs):
        groups = [group for graph in graphs for group in graph.groups()]
        ended = [{n.probe_text for n in own if n.probe_ids[-len(end) :] == end} for own in groups]
        return sum(len(group) - len(texts) for group, texts in zip(groups, ended, strict=True))

    assert poor(plain) > 0 == poor(graphs)
    fixed, same = (
        each.grow(PROMPTS[:1], (6,), purpose="evaluation", iteration=0, num_responses=1)
        for each in (own, sampler(**shape))
    )
    assert fixed == same


def test_a_tree_may_be_as_wide_as_it_likes_at_each_depth():
    (graph,) = sampler().grow(
        PROMPTS[:1], (2, 1, 3), purpose="evaluation", iteration=0, num_responses=1
    )

    assert [2, 1, 1, 3, 3] == [len(group) for group in graph.groups()]


@pytest.mark.real
def test_neither_budget_nor_order_nor_other_prompts_change_a_graph(system):
    # Of the iteration before, a draw lies on the edge between two tokens to eight digits.
    own = sampler(system)
    expected = own.roll_out(PROMPTS, iteration=4)
    narrow = replace(system, config=system.config.model_copy(update={"tokens_per_batch": 1}))

    assert_same(expected, sampler(narrow).roll_out(PROMPTS, iteration=4))
    assert_same(expected, own.roll_out(PROMPTS[::-1], iteration=4)[::-1])
    assert_same(expected[1:2], own.roll_out(PROMPTS[1:2], iteration=4))


def test_siblings_and_replies_differ():
    own = sampler(tree_width=6, tree_depth=1, num_responses=4)
    (graph,) = own.roll_out(PROMPTS[:1], iteration=0)

    assert len({node.probe_ids for node in graph.children}) > 3
    assert len({ids for node in graph.children for ids in node.response_ids}) > 12


@each_row("change", [{"seed": 2}, {"iteration": 1}, {"purpose": "evaluation"}])
def test_seed_iteration_and_purpose_name_the_random_numbers(plain, change):
    name = {"seed": 1, "iteration": 0, "purpose": "training", **change}
    own = sampler(seed=name.pop("seed"))
    (first,) = own.grow(PROMPTS[:1], (3,), num_responses=1, **name)

    assert [n.probe_ids for n in first.nodes()] != [n.probe_ids for n in plain[0].children]


def test_more_replies_leave_probes_and_first_replies_as_they_are(plain):
    many = sampler(num_responses=3).roll_out(PROMPTS[:2], iteration=0)

    for one, other in zip(plain, many, strict=True):
        for node, richer in zip(one.nodes(), other.nodes(), strict=True):
            assert node.probe_ids == richer.probe_ids
            assert node.response_ids == richer.response_ids[:2]
            assert len(richer.response_ids) == len(richer.response_scores) == 3


def test_a_score_is_the_mean_of_the_replies_and_the_probe_is_scored_itself(plain):
    system = tiny_system()
    for graph in plain:
        for node in graph.nodes():
            assert list(node.response_scores) == system.scorer.score(node.response_texts)
            assert node.score == pytest.approx(sum(node.response_scores) / 2)
            assert [node.probe_score] == system.scorer.score([node.probe_text])


def test_a_child_reads_what_its_parent_read_and_what_was_said(system, graphs):
    attacker = system.attacker
    limit = system.context_limit(attacker, system.config.probe.max_new_tokens)
    for graph in graphs:
        whole = {(): attacker.closed_ids(attacker.encode(graph.prompt.text))}
        for node in graph.nodes():
            context = whole[node.path[:-1]]
            assert node.context_ids == context[-limit:]
            assert node.truncated_tokens == max(0, len(context) - limit)
            reply = node.response_ids[0]
            if not system.shares_tokenizer:
                reply = attacker.encode(node.response_texts[0])
            whole[node.path] = (
                context + attacker.closed_ids(node.probe_ids) + attacker.closed_ids(reply)
            )


def test_contexts_that_are_too_long_lose_their_oldest_tokens():
    system = SYSTEMS["short contexts"]()
    graphs = sampler(system, tree_depth=3, tree_width=2).roll_out(PROMPTS[:2], iteration=0)
    nodes = [node for graph in graphs for node in graph.nodes()]

    assert any(node.truncated_tokens for node in nodes)
    assert max(len(node.context_ids) for node in nodes) == 9


def test_a_model_never_reads_more_than_it_has_positions_for():
    target = tiny_language_model(9, kind="gpt2", max_positions=20)
    own = sampler(tiny_system(target=target), tree_depth=3, tree_width=2)
    graphs = own.roll_out(PROMPTS[:2], iteration=0)

    assert all(node.response_ids for graph in graphs for node in graph.nodes())


def test_reference_log_probabilities_are_those_of_a_pass_of_their_own(system, graphs):
    for graph in graphs:
        nodes = list(graph.nodes())
        expected = system.reference.continuation_logprobs(
            [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
        )
        for node, logprobs in zip(nodes, expected, strict=True):
            assert logprobs == pytest.approx(node.reference_logprobs, abs=ROUNDING)


def test_attacker_log_probabilities_are_those_of_a_pass_of_their_own(system, graphs):
    for graph in graphs:
        nodes = list(graph.nodes())
        expected = system.attacker.continuation_logprobs(
            [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
        )
        for node, logprobs in zip(nodes, expected, strict=True):
            assert logprobs == pytest.approx(node.probe_logprobs, abs=ROUNDING)
            assert (True,) * len(node.probe_ids) == node.probe_mask


def in_target_ids(system, ids, text):
    target = system.target.language_model
    return target.closed_ids(ids if system.shares_tokenizer else target.encode(text))


def test_target_log_probabilities_are_those_of_the_probe_after_what_the_target_read(system, graphs):
    target = system.target.language_model
    limit = system.context_limit(target, system.config.response.max_new_tokens)
    for graph in graphs:
        read = {(): target.closed_ids(target.encode(graph.prompt.text))}
        for node in graph.nodes():
            probe = in_target_ids(system, node.probe_ids, node.probe_text)
            context = read[node.path[:-1]]
            kept = (context + probe)[-limit:]
            num_own = min(len(probe), len(kept) - 1)
            (expected,) = target.continuation_logprobs([kept[:-num_own]], [kept[-num_own:]])
            # A separator that the attacker did not say is no part of the probe.
            num_added = len(probe) - len(node.probe_ids) if system.shares_tokenizer else 0
            expected = expected[: len(expected) - max(0, num_added)]
            assert expected == pytest.approx(node.target_logprobs, abs=ROUNDING)
            read[node.path] = context + probe + target.closed_ids(node.response_ids[0])


class SilentAtDepth(CausalLM):
    """A target that stops answering once a conversation has had so many turns."""

    depth = calls = 0

    def respond(self, *arguments, **options):
        self.calls += 1
        if self.calls >= self.depth:
            msg = "http 503 after 3 tries"
            raise TargetError(msg)
        return super().respond(*arguments, **options)


def silent_at(depth, system):
    target = SilentAtDepth.of(system.reference, system.config)
    target.depth = depth
    return replace(system, target=target)


class Moody(CausalLM):
    """Fails to answer every second probe."""

    def respond(self, *arguments, **options):
        answers = super().respond(*arguments, **options)
        gone = Failure("http 503", kind="server")
        return [gone if index % 2 else own for index, own in enumerate(answers)]


def test_one_failed_call_fails_one_turn_and_not_its_level(plain):
    system = tiny_system()
    system = replace(system, target=Moody.of(system.reference, system.config))
    found = sampler(system, limit=0.9).roll_out(PROMPTS[:2], iteration=0)

    for graph, other in zip(found, plain, strict=True):
        firsts = zip(graph.children, other.children, strict=True)
        assert [own.has_failed for own in graph.children].count(True) in {1, 2}
        for own, expected in firsts:
            assert own.probe_ids == expected.probe_ids
            if own.has_failed:
                assert (own.outcome, own.children) == (Failure("http 503", "server"), ())
            else:
                assert own.outcome == expected.outcome


def test_turns_that_got_no_reply_say_why_and_have_no_children():
    system = tiny_system()
    system = silent_at(2, system)
    graphs = sampler(system, limit=0.9, tree_depth=3).roll_out(PROMPTS, iteration=0)

    for graph in graphs:
        nodes = list(graph.nodes())
        assert [False] * 3 + [True] * 9 == [node.has_failed for node in nodes]
        for node in nodes[3:]:
            assert node.failure == "TargetError: http 503 after 3 tries"
            assert len(node.path) == 2
            assert (node.response_texts, node.response_scores, node.children) == ((), (), ())
            assert math.isnan(node.score)
            assert len(node.reference_logprobs) == len(node.probe_ids)


def test_too_many_failures_end_the_rollout_with_the_first_reason():
    system = tiny_system()
    system = silent_at(1, system)

    with pytest.raises(RolloutError) as caught:
        sampler(system, limit=0.5).roll_out(PROMPTS, iteration=0)
    assert str(caught.value) == (
        "12 of 12 turns failed (100%), rollouts.max_failed_fraction allows 50%; first: "
        "TargetError: http 503 after 3 tries"
    )


def test_an_error_that_is_no_failure_of_the_target_is_not_swallowed():
    class Broken(PhraseScorer):
        def score(self, _):
            raise ZeroDivisionError

    scorer = Broken(PhraseScorer.Options(phrases=("x",)))
    with pytest.raises(PluginError, match=r"Broken' must not fail in score, got ZeroDivisionError"):
        sampler(tiny_system(scorer=scorer)).roll_out(PROMPTS, iteration=0)


def test_no_prompts_make_no_graphs():
    assert sampler().roll_out([], iteration=0) == []


def test_precision_bf16_moves_log_probabilities_by_rounding_and_leaves_the_weights_alone():
    fine, coarse = tiny_system(), tiny_system(config=config(precision="bf16"))
    before = [weight.clone() for weight in coarse.attacker.model.parameters()]
    shallow = {"tree_width": 2, "tree_depth": 1, "num_responses": 1}
    exact_nodes = sampler(fine, **shallow).roll_out(PROMPTS, iteration=0)
    graphs = sampler(coarse, **shallow).roll_out(PROMPTS, iteration=0)
    pairs = [
        (node, twin)
        for graph, other in zip(exact_nodes, graphs, strict=True)
        for node, twin in zip(graph.nodes(), other.nodes(), strict=True)
        if node.probe_ids == twin.probe_ids
    ]

    assert len(pairs) >= 2
    assert all(a.probe_logprobs != b.probe_logprobs for a, b in pairs)
    for node, twin in pairs:
        assert node.probe_logprobs == pytest.approx(twin.probe_logprobs, abs=0.1)
    after = coarse.attacker.model.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
