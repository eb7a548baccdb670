"""Every algorithm learns from packed trees what it would learn from padded rows."""

import copy
from dataclasses import replace

import pytest
import torch
from tiny_chats import chat_system

from astra_core.engine.abilities import abilities_of
from astra_core.models.language_model import LanguageModel
from astra_core.registry import BUILT_INS
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_parts.testing import tiny_prompts, tiny_system

pytestmark = pytest.mark.routes


def padded(attacker):
    """The same weights with an attention that is not told what to see, and so reads plain rows."""
    model = copy.deepcopy(attacker.model)
    model.set_attn_implementation("eager")
    assert not abilities_of(model).takes_masks
    found = LanguageModel(model, attacker.tokenizer)
    # Ids that end a chat are special, and barred in a model that does not know of it.
    found.allow(ends=attacker.end_ids, others=attacker.said_ids)
    return found


@pytest.fixture(
    scope="module",
    params=["llama", *(pytest.param(kind, marks=pytest.mark.real) for kind in ("gpt2", "chat"))],
)
def system(request):
    """One whose attacker has moved away from its reference, in float64 where all of it can be."""
    if request.param == "chat":
        return chat_system(reference_seed=6, is_same=True)
    system = tiny_system(3, kind=request.param, reference_seed=4)
    if request.param == "gpt2":
        for model in (system.attacker, system.reference):
            model.model.double()
    return system


@pytest.fixture(scope="module")
def rollouts(system):
    prompts = tiny_prompts(3)
    reward = AdversarialReward(AdversarialReward.Options(novelty_weight=1.0))
    shape = TreeSampler.Options(tree_width=2, tree_depth=3, num_responses=1)
    sampler = TreeSampler(shape, system=system, prompts=prompts, reward=reward, seed=5)
    return reward.assign(sampler.roll_out(prompts, iteration=0))


def outcome(algorithm, graphs):
    """Loss and gradients of an update by all there is to learn, and the share of tokens read."""
    algorithm.remember(graphs)
    steps = algorithm.flatten_all(graphs)
    middle = len(steps) // 4
    model = algorithm.system.attacker.model
    model.zero_grad(set_to_none=True)
    batches = [algorithm.collate(part) for part in (steps[:middle], steps[middle:])]
    weight, total = sum(batch.weight for batch in batches), 0.0
    read = []
    handle = model.get_input_embeddings().register_forward_pre_hook(
        lambda _, given: read.append(given[0].numel())
    )
    for batch in batches:
        loss, _ = algorithm.step(batch)
        (loss / weight).backward()
        total += float(loss.detach()) / weight
    handle.remove()
    trained = [*model.named_parameters()]
    trained += [(f"own {index}", own) for index, own in enumerate(algorithm.parameters())]
    gradients = {name: p.grad for name, p in trained if p.grad is not None}
    return total, gradients, sum(read) / sum(batch.num_tokens for batch in batches)


WARM = {"entropy_coefficient": 0.5}
CASES = [
    *((name, {}) for name in BUILT_INS["algorithm"]),
    *((name, WARM) for name in ("reinforce", "rloo", "grpo", "ppo")),
    ("dpo", {"on_policy_weights": True, "loss": {"sigmoid": 1.0, "sft": 0.2}}),
    ("grpo", {"kl": "loss", "kl_importance_weighted": True, "surrogate": "sapo"}),
]


# One of pairs and one of tokens are quick.
@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(*case, marks=() if case in (("dpo", {}), ("grpo", {})) else pytest.mark.real)
        for case in CASES
    ],
)
def test_an_update_by_packed_trees_is_the_one_by_padded_rows(
    name, options, system, rollouts, make_algorithm
):
    is_gpt2 = system.attacker.model.config.model_type == "gpt2"
    plain = replace(system, attacker=padded(system.attacker))
    expected, gradients, share = outcome(make_algorithm(name, own=plain, **options), rollouts)
    loss, found, packed_share = outcome(make_algorithm(name, own=system, **options), rollouts)

    # A batch counts the tokens of its rows, each in full.
    assert packed_share < 0.9
    assert share >= 1.0
    assert set(gradients) == set(found)
    # What values and old log-probabilities add is in fp32.
    tolerance = 1e-6 if is_gpt2 and name != "ppo" else 1e-4
    assert expected == pytest.approx(loss, rel=tolerance, abs=tolerance)
    size = max(float(gradient.abs().max()) for gradient in gradients.values())
    for key, gradient in gradients.items():
        torch.testing.assert_close(gradient, found[key], rtol=0.0, atol=tolerance * size)
