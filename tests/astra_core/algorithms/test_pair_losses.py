"""The losses over pairs as options of dpo: sums, weights, divergences and what is refused."""

import math

import pytest
import torch
from each_row import each_row

from astra_core.algorithms import functional as fn
from astra_core.algorithms.dpo import DPO
from astra_core.algorithms.movement import FIGURES
from astra_core.algorithms.pair_losses import PairLossOptions, pair_losses
from astra_core.engine.logprobs import token_logprobs
from astra_core.errors import ConfigurationError
from astra_parts.algorithms import functional as parts
from astra_parts.testing import tiny_graph, tiny_node

CHOSEN, REJECTED = torch.tensor([1.0, -2.0, 0.3]), torch.tensor([0.5, 4.0, -0.1])


def losses(**options):
    read = PairLossOptions.read({"beta": 0.5, **options}, where="options")
    return pair_losses(read)(CHOSEN, REJECTED)


@each_row(
    ("loss", "function", "options"),
    [
        ("sigmoid", fn.dpo_losses, {}),
        ("conservative", parts.cdpo_losses, {"label_smoothing": 0.2}),
        ("robust", parts.robust_dpo_losses, {"label_smoothing": 0.2}),
        ("hinge", parts.hinge_losses, {}),
        ("ipo", parts.ipo_losses, {}),
        ("exo", parts.exo_losses, {"label_smoothing": 0.2}),
        ("discopop", parts.discopop_losses, {}),
        ("nca", parts.nca_losses, {}),
        ("bco", parts.bco_losses, {}),
        ("sppo", parts.sppo_losses, {}),
        ("apo_zero", parts.apo_zero_losses, {}),
        ("apo_down", parts.apo_down_losses, {}),
        ("aot", parts.aot_losses, {}),
    ],
)
def test_a_name_is_its_function(loss, function, options):
    expected = function(CHOSEN, REJECTED, beta=0.5, **options)

    assert torch.equal(expected, losses(loss=loss, **options))
    torch.testing.assert_close(3.0 * expected, losses(loss={loss: 3.0}, **options))


def test_several_losses_are_added_with_their_weights():
    expected = 2.0 * fn.dpo_losses(CHOSEN, REJECTED, beta=0.5)
    expected += 0.5 * parts.bco_losses(CHOSEN, REJECTED, beta=0.5)

    torch.testing.assert_close(expected, losses(loss={"sigmoid": 2.0, "bco": 0.5, "sft": 9.0}))


@each_row("loss", ["sigmoid", "hinge", "discopop"])
def test_another_divergence_changes_what_margins_are_measured_by(loss):
    scores = [
        parts.divergence_scores(side, divergence="alpha", alpha=0.2) for side in (CHOSEN, REJECTED)
    ]
    name = {"sigmoid": "dpo"}.get(loss, loss) + "_losses"
    expected = (getattr(fn, name, None) or getattr(parts, name))(*scores, beta=0.5)

    found = losses(loss=loss, divergence="alpha", divergence_alpha=0.2)
    assert torch.equal(expected, found)


REFUSED = [
    ({"loss": {}}, "loss must name a loss over pairs"),
    ({"loss": {"sft": 1.0}}, "loss must name a loss over pairs; to imitate alone"),
    ({"loss": "sft"}, "loss"),
    ({"loss": {"sigmoid": 0.0}}, "greater than 0"),
    ({"loss": {"huge": 1.0}}, "loss"),
    ({"label_smoothing": 0.1}, "label_smoothing must be 0 unless loss is conservative, robust"),
    ({"loss": {"sigmoid": 1.0}, "label_smoothing": 0.1}, "label_smoothing must be 0 unless"),
    ({"loss": "exo"}, "label_smoothing must be above 0 when loss is exo; 0.001 is usual"),
    ({"divergence_alpha": 0.2}, "divergence_alpha must be left out unless divergence is 'alpha'"),
    ({"divergence": "alpha", "divergence_alpha": 1.0}, "less than 1"),
    *(
        ({"loss": loss, "divergence": "forward_kl"}, f"'reverse_kl' when loss is '{loss}'")
        for loss in ("ipo", "nca", "bco", "sppo", "apo_zero", "apo_down", "aot")
    ),
    ({"loss": {"aot": 1.0}, "on_policy_weights": True}, "which takes pairs apart"),
    (
        {"loss": {"sigmoid": 1.0, "nca": 1.0}, "divergence": "alpha"},
        "'reverse_kl' when loss is 'nca'",
    ),
    (
        {"divergence": "alpha", "length_normalised": True},
        "'reverse_kl' when length_normalised is true",
    ),
]


@each_row(("options", "message"), REFUSED)
def test_what_cannot_work_together_is_refused_in_one_line(options, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        DPO.Options.read(options, where="training.algorithm.options")

    assert "\n" not in str(caught.value)


def test_smoothing_may_be_read_by_one_loss_of_several():
    options = {"loss": {"sigmoid": 1.0, "robust": 1.0, "sft": 0.1}, "label_smoothing": 0.1}

    assert {"sigmoid": 1.0, "robust": 1.0, "sft": 0.1} == PairLossOptions.read(
        options, where="options"
    ).terms


def outcome(algorithm, pairs):
    loss, figures = algorithm.step(algorithm.collate(pairs))
    return float(loss.detach()), figures


def pairs_of(algorithm, experience):
    return [pair for graph in experience for pair in algorithm.flatten(graph)]


def test_a_copied_probe_adds_its_likelihood_per_token(experience, make_algorithm):
    plain = make_algorithm("dpo", loss={"sigmoid": 1.0})
    copying = make_algorithm("dpo", loss={"sigmoid": 1.0, "sft": 0.5})
    pairs = pairs_of(plain, experience)
    attacker = plain.system.attacker
    own = attacker.continuation_logprobs(
        [pair.chosen.context_ids for pair in pairs], [pair.chosen.probe_ids for pair in pairs]
    )
    expected = -math.fsum(math.fsum(row) / len(row) for row in own)
    without, _ = outcome(plain, pairs)
    found, figures = outcome(copying, pairs)

    assert 0.5 * expected == pytest.approx(found - without, rel=1e-4)
    assert expected / len(pairs) == pytest.approx(figures["copied_nll_nats"], rel=1e-4)


def test_a_weighted_pair_counts_as_far_as_the_attacker_would_say_it(experience, make_algorithm):
    plain, weighted = make_algorithm("dpo"), make_algorithm("dpo", on_policy_weights=True)
    (pair, *_) = pairs_of(plain, experience)
    batch = plain.collate([pair])
    # Every token of the vocabulary after each context, by whole passes.
    attacker = plain.system.attacker
    weight = 1.0
    for node in (pair.chosen, pair.rejected):
        own = attacker.continuation_logprobs([node.context_ids], [node.probe_ids])[0]
        excess = []
        for at, value in enumerate(own):
            context = node.context_ids + node.probe_ids[:at]
            vocabulary = range(attacker.vocabulary_size)
            every = attacker.continuation_logprobs(
                [context] * len(vocabulary), [(token,) for token in vocabulary]
            )
            excess.append(value - math.log(math.fsum(math.exp(2 * v) for (v,) in every)))
        weight *= math.exp(math.fsum(excess) / len(excess))
    found, figures = outcome(weighted, [pair])

    assert batch.weight == 1.0
    assert outcome(plain, [pair])[0] * weight == pytest.approx(found, rel=1e-3)
    assert weight == pytest.approx(figures["pair_weight"], rel=1e-3)


def test_a_weight_carries_no_gradient(experience, make_algorithm):
    """The gradient of a weighted pair is the weight times that of the pair."""
    plain, weighted = make_algorithm("dpo"), make_algorithm("dpo", on_policy_weights=True)
    pairs = pairs_of(plain, experience)[:1]

    def gradient(algorithm):
        loss, figures = algorithm.step(algorithm.collate(pairs))
        model = algorithm.system.attacker.model
        model.zero_grad(set_to_none=True)
        loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()]), figures

    expected, _ = gradient(plain)
    found, figures = gradient(weighted)
    size = float(expected.abs().max())
    torch.testing.assert_close(figures["pair_weight"] * expected, found, rtol=0.0, atol=1e-5 * size)


@pytest.mark.parametrize(
    "options",
    [
        {"loss": {"sigmoid": 1.0, "sft": 0.2}},
        {"on_policy_weights": True},
        {"loss": "apo_zero"},
        {"divergence": "jensen_shannon"},
        {"turn_weights": "visits"},
    ],
)
def test_micro_batches_and_order_change_no_gradient(
    options, experience, make_algorithm, gradient_of, nudge
):
    algorithm = make_algorithm("dpo", pairs="all", margin=0.0, **options)
    pairs = pairs_of(algorithm, experience)
    nudge(algorithm.system)
    whole = gradient_of(algorithm, [algorithm.collate(pairs)])
    backwards = pairs[::-1]
    parts = [algorithm.collate(backwards[at : at + 3]) for at in range(0, len(pairs), 3)]

    size = float(whole.abs().max())
    torch.testing.assert_close(whole, gradient_of(algorithm, parts), rtol=0.0, atol=1e-4 * size)


def test_the_plain_loss_reads_no_more_than_log_probabilities(experience, make_algorithm):
    """Weights and copies cost nothing where none are asked for."""
    algorithm = make_algorithm("dpo")
    batch = algorithm.collate(pairs_of(algorithm, experience))
    loss, figures = algorithm.step(batch)
    logprobs = token_logprobs(algorithm.system.attacker.model, batch.rows)
    ratios = fn.sequence_log_ratios(logprobs, batch.reference_logprobs, batch.mask)

    assert torch.equal(fn.dpo_losses(*ratios.chunk(2), beta=0.1).sum(), loss)
    assert {"reward_accuracy", "reward_margin", "chosen_reward", "rejected_reward"} == set(
        figures
    ) - set(FIGURES)


BETTER, WORSE = (2, 3, 0), (6, 7, 8, 0)


def graph_with_gap(system, gap):
    """A pair whose chosen probe leads by ``gap`` nats, all of it against its reference."""
    nodes = []
    for ids, reward, lead in ((BETTER, 0.9, gap), (WORSE, 0.1, 0.0)):
        (own,) = system.attacker.continuation_logprobs([(4, 5, 0)], [ids])
        reference = tuple(value - lead / len(ids) for value in own)
        nodes.append(tiny_node(reward, probe_ids=ids, reference_logprobs=reference))
    return tiny_graph(*nodes)


def outcome_of_pair(algorithm, graph):
    """Loss, metrics and the size of the gradient on the attacker."""
    loss, metrics = algorithm.step(algorithm.collate(algorithm.flatten(graph)))
    parameters = list(algorithm.system.attacker.model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    squares = [float(part.square().sum()) for part in gradients if part is not None]
    return float(loss.detach()), metrics, sum(squares) ** 0.5


# (gap - 1 / (2 beta))^2: at beta 0.1 the gap aimed at is 5 nats, at beta 0.5 it is 1.
@pytest.mark.parametrize(
    ("beta", "gap", "expected"),
    [(0.1, 0.0, 25.0), (0.1, 3.0, 4.0), (0.1, 7.0, 4.0), (0.5, 0.0, 1.0), (0.5, -1.0, 4.0)],
)
def test_ipo_is_the_squared_distance_from_the_wanted_gap(
    beta, gap, expected, make_algorithm, system
):
    loss, metrics, _ = outcome_of_pair(
        make_algorithm("dpo", loss="ipo", beta=beta), graph_with_gap(system, gap)
    )

    assert expected == pytest.approx(loss, abs=1e-3)
    assert beta * gap == pytest.approx(metrics["reward_margin"], abs=1e-5)


def test_ipo_leaves_a_pair_alone_that_is_settled(make_algorithm, system):
    algorithm = make_algorithm("dpo", loss="ipo", beta=0.1)
    _, _, settled = outcome_of_pair(algorithm, graph_with_gap(system, 5.0))
    _, _, open_ = outcome_of_pair(algorithm, graph_with_gap(system, 4.0))

    assert settled < 1e-3 * open_


@pytest.mark.parametrize(("gap", "grows"), [(3.0, True), (7.0, False)])
def test_ipo_pulls_a_gap_to_its_size_from_both_sides(gap, grows, make_algorithm, system):
    algorithm = make_algorithm("dpo", loss="ipo", beta=0.1)
    batch = algorithm.collate(algorithm.flatten(graph_with_gap(system, gap)))
    optimizer = torch.optim.SGD(algorithm.system.attacker.model.parameters(), lr=1e-4)
    loss, before = algorithm.step(batch)
    loss.backward()
    optimizer.step()
    _, after = algorithm.step(batch)

    assert grows is (after["reward_margin"] > before["reward_margin"])


def test_ipo_with_length_normalisation_has_a_gap_of_means(make_algorithm, system):
    # 6 nats over the 3 tokens of the chosen probe are 2 per token: (2 - 5)^2.
    algorithm = make_algorithm("dpo", loss="ipo", beta=0.1, length_normalised=True)
    loss, _, _ = outcome_of_pair(algorithm, graph_with_gap(system, 6.0))

    assert 9.0 == pytest.approx(loss, abs=1e-3)
