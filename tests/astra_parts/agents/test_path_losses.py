from functools import partial

import pytest
import torch
from tiny_agents import agents_config, agents_trainer

from astra_parts.agents.path_losses import path_losses
from astra_parts.algorithms.functional.lookahead import lookahead_gradient

OWN = {"presser": {"model": "own"}}
LEARNING = ("opener", "presser")


@pytest.fixture(scope="module")
def experience(tmp_path_factory):
    """A tiny experience, with models in double precision."""
    trainer = agents_trainer(tmp_path_factory.mktemp("models"), agents_config(**OWN))
    graphs = trainer.harness.experience(0).graphs
    system = trainer.sampler.system
    for agent in system.agents:
        agent.model.model.double()
    return graphs, system


def weights_of(system):
    return {
        agent.name: {
            key: w.detach().clone().requires_grad_()
            for key, w in agent.model.model.named_parameters()
        }
        for agent in system.agents
    }


def test_where_nobody_has_moved_a_loss_is_zero_and_its_gradient_is_not(experience):
    graphs, system = experience
    weights = weights_of(system)
    for losses in path_losses(graphs, system, LEARNING, clip=0.2).values():
        total = sum(loss(weights) for loss in losses)
        # What is earned is measured against the mean of each tree.
        assert 0.0 == pytest.approx(total.item(), abs=1e-6)
        slopes = torch.autograd.grad(total, list(weights["opener"].values()))
        assert max(float(own.abs().max()) for own in slopes) > 0.0


def test_the_foreseeing_gradient_is_the_derivative_by_finite_differences(experience):
    graphs, system = experience
    losses, lr = path_losses(graphs, system, LEARNING, clip=0.9), 0.5
    weights = weights_of(system)
    found = lookahead_gradient(losses, weights, leader="opener", lr=lr)
    torch.manual_seed(1)
    ways = {key: torch.randn_like(own) for key, own in weights["opener"].items()}

    def foreseen(step):
        own = {key: (w + step * ways[key]).detach() for key, w in weights["opener"].items()}
        now = {"opener": own, "presser": weights["presser"]}
        loss = sum(each(now) for each in losses["presser"])
        slopes = torch.autograd.grad(loss, list(weights["presser"].values()))
        moved = {
            key: w.detach() - lr * slope
            for (key, w), slope in zip(weights["presser"].items(), slopes, strict=True)
        }
        return sum(each({**now, "presser": moved}) for each in losses["opener"]).item()

    expected = (foreseen(1e-4) - foreseen(-1e-4)) / 2e-4
    told = float(sum((found[key] * ways[key]).sum() for key in ways))
    own = lookahead_gradient(losses, weights, leader="opener", lr=0.0)
    plain = float(sum((own[key] * ways[key]).sum() for key in ways))

    assert expected == pytest.approx(told, rel=1e-3)
    # The check would not see the term if it were smaller than its tolerance.
    assert abs(told - plain) > 1e-2 * abs(told)


def test_pieces_and_padding_change_nothing(experience):
    graphs, system = experience
    weights = weights_of(system)
    ahead = partial(lookahead_gradient, weights=weights, leader="opener", lr=0.5)
    small = type(system)(
        **{
            **{name: getattr(system, name) for name in system.__slots__},
            "config": system.config.model_copy(update={"tokens_per_batch": 1}),
        }
    )
    pieces = path_losses(graphs, small, LEARNING, clip=0.2)

    assert len(graphs) == len(pieces["opener"]) > 1
    whole = ahead(path_losses(graphs, system, LEARNING, clip=0.2))
    for key, own in ahead(pieces).items():
        torch.testing.assert_close(own, whole[key], rtol=1e-6, atol=1e-9)
