import math
import threading

import pytest
import torch
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
    tiny_graph,
    tiny_language_model,
    tiny_node,
    tiny_prompts,
    tiny_system,
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


class _Terse(TreeSampler):
    def _fill_reference(self, children):
        pass


@pytest.mark.parametrize(
    ("sampler", "promise"),
    [(_Shuffled, "in order"), (_Stuck, "iterations differ"), (_Terse, "reference it declares")],
)
def test_a_sampler_that_breaks_a_promise_is_told_which(sampler, promise):
    with pytest.raises(AssertionError, match=promise):
        check_sampler(sampler)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_tiny_models_are_the_same_for_the_same_seed_alone(kind):
    first, same, other = (tiny_language_model(seed, kind=kind) for seed in (3, 3, 4))

    weights = [torch.cat([p.flatten() for p in m.model.parameters()]) for m in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert first.num_parameters < 20_000


def test_tiny_models_leave_the_global_random_state_alone():
    before = torch.get_rng_state()

    tiny_language_model(9)

    assert torch.equal(before, torch.get_rng_state())


def test_the_byte_level_tokenizer_knows_every_text():
    model = tiny_language_model(vocabulary=None)

    assert model.decode(model.encode("Grüße, 世界!")) == "Grüße, 世界!"


def test_only_the_attacker_of_a_tiny_system_is_trained():
    system = tiny_system()

    assert all(p.requires_grad for p in system.attacker.model.parameters())
    assert not any(p.requires_grad for p in system.reference.model.parameters())
    assert system.shares_tokenizer
    assert system.reference_is_target


def test_the_reference_of_a_tiny_system_can_be_another_than_the_attacker():
    def weights(model):
        return torch.cat([p.detach().flatten() for p in model.model.parameters()])

    plain, moved = tiny_system(3), tiny_system(3, reference_seed=4)
    assert torch.equal(weights(plain.attacker), weights(moved.attacker))
    assert torch.equal(weights(plain.attacker), weights(plain.reference))
    assert not torch.equal(weights(moved.attacker), weights(moved.reference))


def test_tiny_prompts_differ():
    prompts = tiny_prompts(20)

    assert len({prompt.text for prompt in prompts}) == 20
    assert len({prompt.prompt_id for prompt in prompts}) == 20


def test_tiny_graph_gives_every_turn_the_path_of_its_place():
    graph = tiny_graph(tiny_node(0.1, tiny_node(0.7), tiny_node(0.2)), tiny_node(math.pi))

    assert [node.path for node in graph.nodes()] == [(0,), (1,), (0, 0), (0, 1)]
    assert [node.reward for node in graph.nodes()] == [0.1, math.pi, 0.7, 0.2]
