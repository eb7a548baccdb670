"""The walk of ``examples/one_step.py`` computes what the library does."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
import torch

from astra_core.algorithms.dpo import DPO
from astra_core.config import EvaluationConfiguration
from astra_core.evaluator import Evaluator
from astra_core.registry import build
from astra_core.rollout import Prompt
from astra_core.system import System
from astra_core.training.distribution.distributed import World
from astra_core.training.update import Updates
from astra_parts.assembly import build_sampler
from tasks.params.schema import Params, read_record

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/one_step.py"


@pytest.fixture(scope="module")
def walk():
    """The example as a module, with two of its prompts."""
    spec = importlib.util.spec_from_file_location("one_step", SCRIPT)
    module = sys.modules["one_step"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PROMPTS = module.PROMPTS[:2]
    yield module
    del sys.modules["one_step"]


@pytest.fixture(scope="module")
def params():
    return Params.read(read_record(ROOT / "params.yaml"), where="")


@pytest.fixture(scope="module")
def sampler(walk, params):
    folders = dict.fromkeys(("attacker", "target", "reference"), walk.MODEL)
    system = System.load(params.system, **folders, is_trained=True)
    prompts = [Prompt.of(text) for text in walk.PROMPTS]
    return build_sampler(
        params.rollouts, params.reward, system=system, prompts=prompts, seed=walk.SEED
    )


@pytest.fixture(scope="module")
def graphs(sampler):
    return sampler.reward.assign(sampler.roll_out(sampler.prompts, iteration=0))


def test_the_walk_imports_nothing_of_ours():
    imported = re.findall(r"^(?:from|import) (\w+)", SCRIPT.read_text("utf-8"), re.MULTILINE)

    assert "torch" in imported
    assert not {"astra_core", "astra_parts", "tasks", "flows", "benchmarks", "plugins"} & set(
        imported
    )


@pytest.mark.real  # two whole rollouts of the shipped model
def test_its_tokens_and_success_are_those_of_the_library(walk, params, sampler, graphs):
    attacker = walk.load()
    trees = walk.Rollout(attacker, attacker).trees()
    own = [turn for tree in trees for group in walk.groups(tree) for turn in group]
    theirs = [node for graph in graphs for node in graph.nodes()]
    pairs = list(zip(own, theirs, strict=True))
    config = EvaluationConfiguration(
        num_rollouts=walk.EVALUATION_WIDTHS[0], depth=2, num_responses=1, threshold=walk.THRESHOLD
    )
    reward, seed = build("reward", params.reward), walk.SEED
    found = Evaluator(config, prompts=sampler.prompts, reward=reward, seed=seed)
    rate = found.evaluate(sampler.system).intervals["attack_success_rate"].value

    assert [node.path for node in theirs] == [turn.path for turn in own]
    # A random number within rounding of a token's edge gives the neighbour: one in thousands.
    alike = sum(turn.probe == [*node.probe_ids] for turn, node in pairs)
    replies = sum(turn.replies == [[*ids] for ids in node.response_ids] for turn, node in pairs)
    assert min(alike, replies) >= 0.95 * len(pairs)
    assert walk.success(attacker, attacker) == pytest.approx(rate, abs=0.05)


@pytest.mark.real
def test_its_rewards_loss_gradient_and_update_are_those_of_the_library(
    walk, params, sampler, graphs
):
    choice = params.training.algorithm
    algorithm = DPO(DPO.Options(**choice.options_for(DPO)), system=sampler.system)
    steps = [step for graph in graphs for step in algorithm.flatten(graph)]
    updates = Updates(params.training, algorithm, sampler.system.attacker, world=World())
    done = updates.apply([algorithm.collate(steps)], training_step=0)

    trees = [[_turn(walk, graph.prompt.text, node) for node in graph.children] for graph in graphs]
    turns = [turn for tree in trees for group in walk.groups(tree) for turn in group]
    walk.give_rewards(turns, torch.zeros(walk.NUM_BINS, dtype=torch.float64))
    pairs = [pair for tree in trees for pair in walk.pairs_of(tree)]
    attacker = walk.load()
    loss = walk.dpo_loss(attacker, pairs)
    norm = walk.update(attacker, walk.optimizer_of(attacker), loss)

    rewards = [node.reward for graph in graphs for node in graph.nodes()]
    assert rewards == pytest.approx([turn.reward for turn in turns], abs=1e-6)
    assert [step.weight for step in steps] == pytest.approx([weight for _, _, weight in pairs])
    assert done.loss == pytest.approx(loss.item(), rel=1e-5)
    assert done.grad_norm == pytest.approx(norm, rel=1e-4)
    assert done.lr == walk.LR
    moved = dict(sampler.system.attacker.model.named_parameters())
    for name, weight in attacker.named_parameters():
        # Adam's first step has the sign of the gradient, which rounding turns only next to 0.
        assert (weight - moved[name]).abs().mean() < 0.01 * walk.LR, name


def _turn(walk, prompt, node):
    """The library's turn as the walk has it, with what follows."""
    turn = walk.Turn(
        prompt,
        node.path,
        [*node.context_ids],
        [*node.probe_ids],
        torch.tensor(node.reference_logprobs),
        [[*ids] for ids in node.response_ids],
        node.score,
        node.probe_score,
    )
    turn.children = [_turn(walk, prompt, child) for child in node.children]
    return turn
