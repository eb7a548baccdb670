import threading
from dataclasses import replace

import pytest
from pydantic import ConfigDict

from astra_core.algorithms.distillation import Distillation
from astra_core.algorithms.dpo import DPO
from astra_core.config import Section
from astra_core.registry import BUILT_INS
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.scorer import Scorer
from astra_core.testing import (
    check_algorithm,
    check_reward,
    check_sampler,
    check_scorer,
)

SCORER_OPTIONS = {"phrases": {"phrases": ["bad", "worse"]}}


@pytest.mark.parametrize("name", BUILT_INS["algorithm"])
def test_every_built_in_algorithm_keeps_the_contract(name):
    check_algorithm(name)


@pytest.mark.parametrize("name", BUILT_INS["scorer"])
def test_every_built_in_scorer_keeps_the_contract(name):
    check_scorer(name, **SCORER_OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", BUILT_INS["reward"])
def test_every_built_in_reward_keeps_the_contract(name):
    check_reward(name)


@pytest.mark.parametrize("name", BUILT_INS["sampler"])
def test_every_built_in_sampler_keeps_the_contract(name):
    check_sampler(name)


class _ForgivingOptions(Scorer):
    class Options(Section):
        model_config = ConfigDict(extra="ignore")

    version = "1"

    def score(self, texts):
        return [0.5] * len(texts)


class _AboveOne(Scorer):
    version = "1"

    def score(self, texts):
        return [2.0] * len(texts)


class _BatchMinded(Scorer):
    version = "1"

    def score(self, texts):
        return [index / max(len(texts), 1) for index in range(len(texts))]


class _Nameless(Scorer):
    version = ""

    def score(self, texts):
        return [0.5] * len(texts)


class _Silent(Scorer):
    version = "1"

    def score(self, _):
        return None


class _Placeless(Scorer):
    version = "1"
    works_on = "somewhere"

    def score(self, texts):
        return [0.5] * len(texts)


class _ThreadMinded(Scorer):
    version = "1"

    def score(self, texts):
        is_main = threading.current_thread() is threading.main_thread()
        return [0.5 if is_main else 0.6] * len(texts)


@pytest.mark.parametrize(
    ("scorer", "promise"),
    [
        (_ForgivingOptions, "refuses an unknown option"),
        (_AboveOne, r"in \[0, 1\]"),
        (_Silent, "one score per text, got NoneType"),
        (_BatchMinded, "does not depend on the batch"),
        (_Nameless, "a version names the scorer"),
        (_Placeless, "works_on is one of"),
        (_ThreadMinded, "does not depend on the thread"),
    ],
)
def test_a_scorer_that_breaks_a_promise_is_told_which(scorer, promise):
    with pytest.raises(AssertionError, match=promise):
        check_scorer(scorer)


class _MeanLoss(DPO):
    def step(self, batch):
        loss, metrics = super().step(batch)
        return loss / batch.weight, metrics


class _Detached(DPO):
    def step(self, batch):
        loss, metrics = super().step(batch)
        return loss * 0.0, metrics


class _LearnsFromFailures(DPO):
    def flatten(self, graph):
        return [*super().flatten(graph), *(node for node in graph.nodes() if node.has_failed)]


class _DeafPupil(Distillation):
    def _opinions(self, nodes):
        return [node.probe_logprobs for node in nodes]


@pytest.mark.parametrize(
    ("algorithm", "promise"),
    [
        (_DeafPupil, "gradient reaches the attacker"),
        (_MeanLoss, "the loss is a sum"),
        (_Detached, "gradient reaches the attacker"),
        (_LearnsFromFailures, "turns that failed teach nothing"),
    ],
)
def test_an_algorithm_that_breaks_a_promise_is_told_which(algorithm, promise):
    with pytest.raises(AssertionError, match=promise):
        check_algorithm(algorithm)


class _Remembering(AdversarialReward):
    def assign(self, graphs):
        rewarded = super().assign(graphs)
        self.remember(rewarded)
        return rewarded


class _Forgetful(AdversarialReward):
    def load_state(self, state):
        pass


@pytest.mark.parametrize(
    ("reward", "promise"),
    [(_Remembering, "assign remembers nothing"), (_Forgetful, "all of the memory")],
)
def test_a_reward_that_breaks_a_promise_is_told_which(reward, promise):
    with pytest.raises(AssertionError, match=promise):
        check_reward(reward)


class _Shuffled(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        return super().roll_out(prompts, iteration=iteration)[::-1]


class _Stuck(TreeSampler):
    def grow(self, prompts, widths, **parts):
        graphs = super().grow(prompts, widths, **{**parts, "iteration": 0})
        return [type(graph)(graph.prompt, parts["iteration"], graph.children) for graph in graphs]


class _Unnumbered(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        first = [replace(prompt, run_id=0) for prompt in prompts]
        graphs = super().roll_out(first, iteration=iteration)
        return [replace(g, prompt=prompt) for g, prompt in zip(graphs, prompts, strict=True)]


class _Terse(TreeSampler):
    def roll_out(self, prompts, *, iteration):
        def terse(node):
            probe = replace(node.probe, reference_logprobs=())
            return replace(node, probe=probe, children=tuple(map(terse, node.children)))

        return [
            replace(graph, children=tuple(map(terse, graph.children)))
            for graph in super().roll_out(prompts, iteration=iteration)
        ]


@pytest.mark.parametrize(
    ("sampler", "promise"),
    [
        (_Shuffled, "in order"),
        (_Stuck, "iterations differ"),
        (_Unnumbered, "runs of a prompt differ"),
        (_Terse, "reference it declares"),
    ],
)
def test_a_sampler_that_breaks_a_promise_is_told_which(sampler, promise):
    with pytest.raises(AssertionError, match=promise):
        check_sampler(sampler)
