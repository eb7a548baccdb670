import copy

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.dpo import DPO
from astra_core.algorithms.pairs import PreferencePair
from astra_core.config import GenerationConfiguration
from astra_core.engine.logprobs import token_logprobs
from astra_core.models.rows import pad_rows
from astra_core.seeding import derive_key
from astra_parts.testing import tiny_language_model, tiny_node, tiny_system
from benchmarks.reference.plain_passes import (
    plain_dpo_loss,
    plain_generate,
    plain_logprobs,
    plain_scores,
)

pytestmark = pytest.mark.routes

CONTEXTS = [(4, 5, 0), (3, 9, 8, 7, 6, 0), (2,)]
CONTINUATIONS = [(2, 3, 0), (5,), (7, 7, 8, 9, 0)]


@each_row("kind", ["llama", "gpt2"])
def test_plain_logprobs_are_those_of_the_library(kind):
    model = tiny_language_model(kind=kind).model
    rows = pad_rows(CONTEXTS, CONTINUATIONS, pad_id=1)
    found, expected = token_logprobs(model, rows), plain_logprobs(model, rows)

    assert (3, 5) == expected.shape
    assert torch.allclose(expected, found, rtol=1e-4, atol=1e-5)
    assert bool((expected[~rows.continuation_mask] == 0.0).all())


def test_plain_logprobs_of_nothing_are_empty():
    rows = pad_rows(CONTEXTS, [()] * 3, pad_id=1)

    assert (3, 0) == plain_logprobs(tiny_language_model().model, rows).shape


def test_plain_scores_are_those_of_the_library():
    model = tiny_language_model()
    plain = plain_scores(model, CONTEXTS, CONTINUATIONS)
    ours = model.continuation_logprobs(CONTEXTS, CONTINUATIONS)

    assert [len(own) for own in CONTINUATIONS] == [len(values) for values in plain]
    assert [pytest.approx(values, rel=1e-4, abs=1e-5) for values in plain] == ours


def test_plain_generate_leaves_the_draw_to_torch_without_keys():
    model, generation = tiny_language_model(), GenerationConfiguration(max_new_tokens=12)
    said = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        said.append(plain_generate(model, CONTEXTS, generation))

    assert said[0] == said[1] != said[2]


def test_plain_generate_draws_a_row_from_its_own_key():
    model, generation = tiny_language_model(), GenerationConfiguration(max_new_tokens=12)
    keys = [derive_key(0, "row", index) for index in range(3)]
    together = plain_generate(model, CONTEXTS, generation, keys=keys)
    alone = [
        plain_generate(model, [context], generation, keys=[key])[0]
        for context, key in zip(CONTEXTS, keys, strict=True)
    ]

    assert together == alone


def test_plain_generate_follows_the_distribution():
    """Of 4000 keyed draws, each token comes as often as its probability says."""
    model, generation = tiny_language_model(), GenerationConfiguration(max_new_tokens=1, top_k=4)
    keys = [derive_key(1, "draw", index) for index in range(4000)]
    drawn = plain_generate(model, [CONTEXTS[0]] * 4000, generation, keys=keys)
    shares = torch.bincount(torch.tensor(drawn)[:, 0], minlength=model.vocabulary_size) / 4000
    logits = model.model(torch.tensor([CONTEXTS[0]])).logits[0, -1].detach()
    logits[0] = -torch.inf  # no end before the first token
    best = logits.topk(4)
    expected = torch.zeros_like(shares).scatter(0, best.indices, best.values.softmax(0))

    assert float((shares - expected).abs().max()) < 0.03


def pairs():
    one, two = tiny_node(0.9, probe_ids=(2, 3, 4, 0)), tiny_node(0.1, probe_ids=(5, 0))
    other = tiny_node(0.8, probe_ids=(6, 6, 7), context_ids=(8, 9, 0, 2, 3, 0))
    worse = tiny_node(0.2, probe_ids=(7, 0), context_ids=(8, 9, 0, 2, 3, 0))
    return [PreferencePair(one, two, 0.8), PreferencePair(other, worse, 0.6)]


def test_plain_dpo_loss_is_that_of_the_library():
    from dataclasses import replace

    system = tiny_system(reference_seed=3)

    def known(node):
        (values,) = system.reference.continuation_logprobs([node.context_ids], [node.probe_ids])
        return replace(node, probe=replace(node.probe, reference_logprobs=values))

    steps = [PreferencePair(known(pair.chosen), known(pair.rejected), pair.gap) for pair in pairs()]
    algorithm = DPO(DPO.Options(beta=0.3), system=system)
    policy = copy.deepcopy(system.attacker.model)
    plain = plain_dpo_loss(policy, system.reference.model, steps, beta=0.3)
    plain.backward()
    batch = algorithm.collate(steps)
    loss, _ = algorithm.step(batch)
    (loss / batch.weight).backward()

    assert float(plain.detach()) == pytest.approx(float(loss.detach()) / batch.weight, rel=1e-5)
    ours = dict(system.attacker.model.named_parameters())
    for name, parameter in policy.named_parameters():
        atol = 3e-5 * float(parameter.grad.abs().max())
        assert torch.allclose(parameter.grad, ours[name].grad, rtol=1e-4, atol=atol), name


def test_plain_dpo_loss_runs_through_a_reference_that_takes_a_gradient():
    policy, reference = (tiny_language_model(seed, is_trained=True).model for seed in (0, 1))
    plain_dpo_loss(policy, reference, pairs(), beta=0.1).backward()

    assert all(parameter.grad is not None for parameter in reference.parameters())
