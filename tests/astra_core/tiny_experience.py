"""A small experience in which attacker, target and reference are three different models."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from astra_core.config import Choice, GenerationConfiguration, SystemConfiguration
from astra_core.registry import build
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Failure, Graph
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from astra_parts.testing import tiny_graph, tiny_language_model, tiny_node, tiny_prompts


def three_models():
    short = GenerationConfiguration(max_new_tokens=6)
    return System.of(
        tiny_language_model(5, is_trained=True),
        tiny_language_model(6),
        tiny_language_model(7),
        scorer=build("scorer", Choice(name="phrases", options={"phrases": ["bad", "worse"]})),
        config=SystemConfiguration(
            max_context_tokens=64, probe=short, response=short, tokens_per_batch=512
        ),
    )


@pytest.fixture
def make_system():
    """A System whose attacker is as it was when the experience was sampled."""
    return three_models


@pytest.fixture
def system():
    return three_models()


@pytest.fixture(scope="session")
def experience():
    """Two rewarded trees three turns deep, one whose siblings are all worth the same, and one
    of three siblings.
    """
    system = three_models()
    options = AdversarialReward.Options(novelty_weight=1.0, nll_weight=0.1, nll_floor=3.0)
    reward = AdversarialReward(options)
    prompts = tiny_prompts(2)
    shape = TreeSampler.Options(tree_width=2, tree_depth=3, num_responses=1)
    sampler = TreeSampler(shape, system=system, prompts=prompts, reward=reward, seed=11)
    flat = tiny_graph(tiny_node(0.3), tiny_node(0.3))
    worth = {0.9: (2, 3, 0), 0.5: (3, 2, 0), 0.1: (6, 7, 0)}
    three = tiny_graph(*(tiny_node(own, probe_ids=ids) for own, ids in worth.items()))
    return [*reward.assign(sampler.roll_out(prompts, iteration=0)), flat, three]


@pytest.fixture
def make_algorithm(make_system):
    """An algorithm on a fresh System; its value head, if it has one, expects something."""

    def make(name, own=None, **options):
        system = own or make_system()
        algorithm = build("algorithm", Choice(name=name, options=options), system=system)
        with torch.no_grad():
            for index, parameter in enumerate(algorithm.parameters()):
                draw = torch.Generator().manual_seed(index)
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=draw))
        return algorithm

    return make


@pytest.fixture
def nudge():
    """Moves the attacker a little, the same every time, so that it is no longer who sampled."""

    def move(system, size=0.05):
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in system.attacker.model.parameters():
                parameter.add_(size * torch.randn(parameter.shape, generator=draw))

    return move


@pytest.fixture
def gradient_of():
    """The gradient on the attacker of what a Trainer would make of these batches."""

    def gradient(algorithm, batches):
        model = algorithm.system.attacker.model
        model.zero_grad(set_to_none=True)
        weight = sum(batch.weight for batch in batches)
        for batch in batches:
            (algorithm.step(batch)[0] / weight).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    return gradient


@pytest.fixture(scope="session")
def vector_cases():
    """The cases of a file of conformance vectors."""

    def read(name):
        path = Path(__file__).parents[1] / "vectors" / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8"))["cases"]

    return read


@pytest.fixture(scope="session")
def graph_of():
    """The graph that a conformance vector describes."""

    def node_of(record):
        children = [node_of(child) for child in record["children"]]
        return tiny_node(record["reward"], *children, probe_text=record["probe"])

    def graph(record) -> Graph:
        return tiny_graph(*(node_of(child) for child in record["children"]))

    return graph


@pytest.fixture(scope="session")
def failing():
    """A turn to which the target gave no answer."""

    def fail(node):
        return replace(node, outcome=Failure("TargetError: no answer"))

    return fail
