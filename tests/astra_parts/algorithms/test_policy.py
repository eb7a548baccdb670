import math

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.movement import FIGURES
from astra_core.errors import ConfigurationError
from astra_core.models.rows import pad_rows, padded_logits
from astra_parts.algorithms.functional import aggregate
from astra_parts.algorithms.kl_penalty import KLOptions, KLPenalty
from astra_parts.algorithms.policy import PolicyGradient, PolicyOptions, log_ratios, mean_of
from astra_parts.algorithms.policy_batch import PolicyBatch
from astra_parts.testing import tiny_graph, tiny_node

LONG = tiny_node(1.0, probe_logprobs=(-1.0, -2.0, -3.0), reference_logprobs=(-4.0, -5.0, -6.0))
SHORT = tiny_node(
    0.0, probe_ids=(6, 0), context_ids=(5, 0), probe_mask=(True, False), reference_logprobs=()
)
LOG_TWO = math.log(2.0)
FREE = KLPenalty(KLOptions())


def batch_of(behaviour, mask, *, reference=None, advantages=((1.0,), (-2.0,))):
    """A batch that was not sampled, for numbers that can be worked out by hand."""
    rows = pad_rows([(4,)] * len(mask), [(2,) * len(row) for row in mask], pad_id=0)
    behaviour = torch.tensor(behaviour)
    reference = behaviour if reference is None else torch.tensor(reference)
    mask = torch.tensor(mask)
    weight = float(mask.sum())
    return PolicyBatch(rows, behaviour, reference, mask, torch.tensor(advantages), weight, 0)


def loss_of(logprobs, losses, *, aggregation="token_mean", penalty=FREE):
    """The loss of ``TWO_ROWS`` and its figures, where a surrogate has given these losses."""
    policy = PolicyGradient(None, lambda *_: (losses, {}), aggregation, penalty)
    return policy.loss(logprobs, TWO_ROWS)


TWO_ROWS = batch_of([[-1.0, -2.0], [-3.0, 0.0]], [[True, True], [True, False]])
# At a masked token anything may stand.
NOW = torch.tensor([[-0.5, -1.0], [-1.0, 9.0]])


def test_log_ratios_are_per_token_summed_or_averaged():
    token, summed, mean = (
        log_ratios(NOW, TWO_ROWS, level=level) for level in ("token", "sequence", "sequence_mean")
    )

    assert [[0.5, 1.0], [2.0, 9.0]] == token.tolist()
    assert [[1.5], [2.0]] == summed.tolist()
    assert [[0.75], [2.0]] == mean.tolist()


# Losses 1 and 2 at the tokens of the first probe, 4 at the one of the second.
@each_row(
    ("mode", "expected"),
    [
        ("token_mean", 7.0),
        ("sequence_mean", 1.5 + 4.0),
        ("sequence_sum", 7.0),
        ("constant_length", 7.0),
    ],
)
def test_the_loss_is_a_sum_over_trained_tokens(mode, expected):
    losses = torch.tensor([[1.0, 2.0], [4.0, math.nan]])
    total, _ = loss_of(NOW, losses, aggregation=mode)

    assert expected == pytest.approx(float(total))


def test_a_column_of_losses_stands_for_every_token_of_its_probe():
    column = torch.tensor([[1.0], [4.0]])
    total, _ = loss_of(NOW, column)

    assert 1.0 + 1.0 + 4.0 == pytest.approx(float(total))


# Above the reference by 0.5, 1 and 2 nats at the trained tokens; half a reward unit per nat.
@each_row(("mode", "expected"), [("token_mean", 0.5 * 3.5), ("sequence_mean", 0.5 * (0.75 + 2.0))])
def test_kl_in_the_loss_is_added_as_the_loss_is(mode, expected):
    penalty = KLPenalty(KLOptions(kl="loss", kl_estimator="k1", kl_coefficient=0.5))
    total, _ = loss_of(NOW, torch.zeros(2, 1), aggregation=mode, penalty=penalty)

    assert expected == pytest.approx(float(total))


def test_the_gradient_comes_from_losses_and_penalty_and_not_from_the_metrics():
    logprobs = NOW.clone().requires_grad_()
    penalty = KLPenalty(KLOptions(kl="loss", kl_estimator="k1", kl_coefficient=0.5))
    total, metrics = loss_of(logprobs, -logprobs, penalty=penalty)
    total.backward()

    assert [[-0.5, -0.5], [-0.5, 0.0]] == logprobs.grad.tolist()
    assert all(isinstance(metric, float) for metric in metrics.values())


def test_metrics_are_means_over_trained_tokens():
    # Twice as likely at one token, unchanged at two, and one that is not trained.
    now = torch.tensor([[-1.0 + LOG_TWO, -2.0], [-3.0, 5.0]])
    _, metrics = loss_of(now, torch.zeros(2, 1))

    # Ratios 2, 1, 1; k3 of the first is 2 - 1 - log 2; advantages 1, 1, -2.
    assert {"ratio": 4 / 3, "policy_kl_nats": (1 - LOG_TWO) / 3, "advantage": 0.0} == pytest.approx(
        {name: metric for name, metric in metrics.items() if name not in FIGURES}, abs=1e-6
    )


def test_the_mean_over_no_trained_token_is_zero():
    none = batch_of([[-1.0, -2.0]], [[False, False]], advantages=((1.0,),))

    assert 0.0 == mean_of(torch.tensor([[math.nan, 3.0]]), none)


def test_tokens_are_counted_alike_unless_asked_otherwise():
    assert "token_mean" == PolicyOptions().aggregation
    with pytest.raises(ConfigurationError, match="aggregation"):
        PolicyOptions.read({"aggregation": "median"}, where="options")


@pytest.mark.parametrize("name", ["reinforce", "rloo", "grpo", "ppo"])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_an_entropy_bonus_is_taken_from_the_loss_as_tokens_are_counted(
    name, aggregation, experience, make_algorithm
):
    plain = make_algorithm(name, aggregation=aggregation)
    warm = make_algorithm(name, aggregation=aggregation, entropy_coefficient=0.5)
    batch = plain.collate(plain.flatten_all(experience))
    rows = getattr(batch, "policy", batch).rows
    with torch.no_grad():
        logs = padded_logits(plain.system.attacker.model, rows).log_softmax(dim=-1)
    own = -(logs.exp() * logs).sum(dim=-1)
    mask = getattr(batch, "policy", batch).mask
    counted = aggregate(own, mask, mode=aggregation)
    (without, _), (found, figures) = plain.step(batch), warm.step(batch)

    # The two losses are large beside the bonus of a few nats per token.
    total = -0.5 * float(counted)
    assert total == pytest.approx(float((found - without).detach()), rel=1e-3)
    mean = float(own[mask].mean())
    assert mean == pytest.approx(figures["entropy_nats"], rel=1e-4)


@pytest.mark.parametrize("name", ["reinforce", "grpo"])
def test_a_step_by_the_entropy_bonus_alone_makes_the_attacker_less_sure(name, make_algorithm):
    # Equal rewards have no advantage: all that is left to learn from is the bonus.
    algorithm = make_algorithm(name, entropy_coefficient=1.0)
    nodes = [tiny_node(0.5, probe_ids=ids) for ids in ((2, 3, 0), (6, 0))]
    batch = algorithm.collate(algorithm.flatten(tiny_graph(*nodes)))
    optimizer = torch.optim.SGD(algorithm.system.attacker.model.parameters(), lr=1e-3)
    entropies = []
    for _ in range(4):
        loss, figures = algorithm.step(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        entropies.append(figures["entropy_nats"])

    assert entropies == sorted(entropies)
    assert entropies[-1] > entropies[0]


def test_without_a_bonus_no_entropy_is_computed_or_logged(experience, make_algorithm):
    for name in ("reinforce", "rloo", "grpo", "ppo"):
        algorithm = make_algorithm(name)
        batch = algorithm.collate(algorithm.flatten_all(experience))

        assert "entropy_nats" not in algorithm.step(batch)[1]
