"""Every guard of a shape, with the whole of what it says.

The functions are called as their modules hold them: what ``checked_shapes`` wraps around the names
of the package would refuse these calls first.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from each_row import each_row

from astra_core.algorithms.functional import credit, groups, kl, masking, preference
from astra_core.errors import ShapeError
from astra_parts.algorithms import functional as parts
from astra_parts.algorithms.functional import (
    advantages,
    aggregation,
    divergences,
    imitation,
    margin_losses,
    policy_gradient,
    preference_variants,
    turns,
)

MATRIX, VECTOR = (2, 3), (2,)
# What torch would take for them without a word, by broadcasting.
NARROW, ALONE = (2, 1), (1,)
DTYPES = {
    "mask": torch.bool,
    "done": torch.bool,
    "terminated": torch.bool,
    "groups": torch.long,
    "runs": torch.long,
    "parents": torch.long,
    "seeds": torch.long,
}


@dataclass(frozen=True)
class Guarded:
    """A function, its tensors in the order of its signature, and what it needs besides."""

    function: Any
    tensors: str
    options: dict[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = MATRIX

    def __str__(self):
        return self.function.__name__

    @property
    def names(self):
        return self.tensors.split()

    def refusal(self, **shapes):
        """What it says when some of its tensors have these shapes instead."""
        given = {
            name: torch.zeros(shapes.get(name, self.shape), dtype=DTYPES.get(name))
            for name in self.names
        }
        with pytest.raises(ShapeError) as caught:
            self.function(**given, **self.options)
        return str(caught.value)


def other_shape(name, first, *, wanted, got):
    return f"{name} must have the shape of {first}, {wanted}, got {got}; slice and pad both alike"


def other_rank(name, rank, got):
    way_out = "reshape it or index the axis that is too many"
    return f"{name} must have {rank} axes, got shape {got}; {way_out}"


def unfitting(name, first, *, wanted, got):
    way_out = "give one row per sequence and 1 or T columns"
    return f"{name} must fit {first} with shape {wanted}, got {got}; {way_out}"


GAE = {"discount": 1.0, "decay": 1.0}
CLIPS = {"clip_low": 0.2, "clip_high": 0.2}
BETA = {"beta": 0.1}
SOFT = {"temperature_good": 1.0, "temperature_bad": 1.0}
SMOOTHED = {"beta": 0.1, "label_smoothing": 0.1}
PAIRS = [
    Guarded(preference.dpo_losses, "chosen rejected", BETA, VECTOR),
    Guarded(margin_losses.cdpo_losses, "chosen rejected", SMOOTHED, VECTOR),
    Guarded(margin_losses.robust_dpo_losses, "chosen rejected", SMOOTHED, VECTOR),
    Guarded(margin_losses.ipo_losses, "chosen rejected", BETA, VECTOR),
    Guarded(margin_losses.balance_losses, "chosen rejected gaps", {"temperature": 0.1}, VECTOR),
    Guarded(margin_losses.hinge_losses, "chosen rejected", BETA, VECTOR),
    Guarded(preference.preference_metrics, "chosen rejected", BETA, VECTOR),
    Guarded(preference_variants.exo_losses, "chosen rejected", SMOOTHED, VECTOR),
    *(
        Guarded(getattr(preference_variants, f"{name}_losses"), "chosen rejected", BETA, VECTOR)
        for name in ("discopop", "nca", "bco", "sppo", "apo_zero", "apo_down")
    ),
]
WEIGHTS_OF_PAIRS = Guarded(preference.on_policy_weights, "logprobs collision_logprobs mask")
LOG_RATIOS = Guarded(preference.sequence_log_ratios, "logprobs other_logprobs mask")
MASKED = [
    Guarded(masking.masked_sum, "values mask"),
    Guarded(masking.masked_mean, "values mask"),
    Guarded(masking.masked_variance, "values mask"),
    Guarded(masking.masked_whiten, "values mask"),
]
LIKELIHOODS = [Guarded(preference.copied_pair_losses, "logprobs mask")]
TOKEN_GAE = Guarded(advantages.token_gae, "rewards values mask", GAE)
RETURNS = Guarded(advantages.reward_to_go, "rewards done mask", {"discount": 1.0})
BACKED_UP = Guarded(
    credit.backed_up_rewards, "rewards parents", {"discount": 1.0, "how": "max"}, VECTOR
)
SIBLINGS = Guarded(credit.sibling_groups, "parents seeds", shape=VECTOR)
PREFERRED = Guarded(credit.preference_pairs, "rewards groups", shape=VECTOR)
OVER_RUNS = Guarded(parts.group_advantages_over_runs, "rewards groups runs", shape=VECTOR)

SAME_SHAPE = [
    *PAIRS,
    LOG_RATIOS,
    WEIGHTS_OF_PAIRS,
    *MASKED,
    Guarded(parts.importance_weighted_kl, "kl log_ratios"),
    Guarded(advantages.gae, "rewards values next_values done terminated", GAE),
    TOKEN_GAE,
    RETURNS,
    BACKED_UP,
    SIBLINGS,
    PREFERRED,
    Guarded(parts.group_advantages, "rewards groups"),
    Guarded(parts.leave_one_out, "rewards groups"),
    Guarded(groups.num_flat_groups, "rewards groups"),
    OVER_RUNS,
    Guarded(
        imitation.distillation_advantages, "logprobs teacher_logprobs mask", {"coefficient": 1.0}
    ),
    Guarded(kl.kl_estimates, "logprobs reference_logprobs", {"estimator": "k1"}),
    Guarded(parts.kl_penalised_rewards, "rewards kl mask", {"coefficient": 1.0}),
    Guarded(policy_gradient.value_losses, "values old_values returns"),
]


@each_row("guarded", SAME_SHAPE)
def test_a_tensor_that_would_broadcast_is_refused(guarded):
    first, *others = guarded.names
    narrow = NARROW if guarded.shape == MATRIX else ALONE
    for name in others:
        expected = other_shape(name, first, wanted=guarded.shape, got=narrow)
        assert expected == guarded.refusal(**{name: narrow})
    # The first says what is wanted, so the next one is blamed.
    assert other_shape(others[0], first, wanted=narrow, got=guarded.shape) == guarded.refusal(
        **{first: narrow}
    )


@each_row("guarded", LIKELIHOODS)
def test_a_mask_that_would_broadcast_over_log_probabilities_is_refused(guarded):
    expected = other_shape("mask", "values", wanted=MATRIX, got=NARROW)

    assert expected == guarded.refusal(mask=NARROW)


RANKS = [
    *PAIRS,
    LOG_RATIOS,
    WEIGHTS_OF_PAIRS,
    Guarded(divergences.divergence_scores, "log_ratios", {"divergence": "alpha"}, VECTOR),
    *LIKELIHOODS,
    TOKEN_GAE,
    BACKED_UP,
    SIBLINGS,
    PREFERRED,
    OVER_RUNS,
    Guarded(credit.sibling_groups, "parents", shape=VECTOR),
    Guarded(parts.group_advantages, "rewards"),
    Guarded(parts.leave_one_out, "rewards"),
    Guarded(groups.num_flat_groups, "rewards"),
    Guarded(imitation.top_k_selection, "rewards", {"k": 1}, VECTOR),
    Guarded(imitation.reward_weighted_probabilities, "rewards", shape=VECTOR),
    Guarded(aggregation.aggregation_weights, "mask", {"mode": "token_mean"}),
    Guarded(aggregation.aggregation_weight, "mask", {"mode": "token_mean", "max_length": 8}),
]


@each_row("guarded", RANKS)
def test_tensors_of_another_rank_are_refused_though_they_agree(guarded):
    rank = len(guarded.shape)
    for shape in ((2,) * (rank + 1), (2,) * (rank - 1)):
        expected = other_rank(guarded.names[0], rank, shape)
        assert expected == guarded.refusal(**dict.fromkeys(guarded.names, shape))


COLUMNS = [
    Guarded(policy_gradient.reinforce_surrogate, "logprobs advantages"),
    Guarded(policy_gradient.clipped_surrogate, "log_ratios advantages", CLIPS),
    Guarded(policy_gradient.is_clipped, "log_ratios advantages", CLIPS),
    Guarded(policy_gradient.is_dual_clipped, "log_ratios advantages", {"dual_clip": 3.0}),
    Guarded(policy_gradient.importance_sampling_surrogate, "log_ratios advantages"),
    Guarded(policy_gradient.soft_surrogate, "log_ratios advantages", SOFT),
    Guarded(
        policy_gradient.truncated_surrogate, "logprobs log_ratios advantages", {"max_ratio": 2.0}
    ),
    Guarded(aggregation.aggregate, "mask values", {"mode": "token_mean"}),
]


@each_row("guarded", COLUMNS)
def test_columns_that_fit_neither_way_are_refused(guarded):
    first, *others = guarded.names
    for name in others:
        # Another number of tokens, of sequences, and a single row for all of them.
        for got in ((2, 4), (4, 3), (1, 3), (1, 1)):
            expected = unfitting(name, first, wanted=MATRIX, got=got)
            assert expected == guarded.refusal(**{name: got})
        assert other_rank(name, 2, (3,)) == guarded.refusal(**{name: (3,)})
    assert other_rank(first, 2, (3,)) == guarded.refusal(**{first: (3,)})


def test_final_values_are_one_for_each_row():
    guarded = Guarded(advantages.token_gae, "rewards values mask final_values", GAE)
    for got in (MATRIX, ALONE, (3,)):
        expected = other_shape("final_values", "rows", wanted=VECTOR, got=got)
        assert expected == guarded.refusal(final_values=got)


TREE = {
    "turn_rewards": VECTOR,
    "token_rewards": MATRIX,
    "values": MATRIX,
    "mask": MATRIX,
    "parents": VECTOR,
    "final_values": VECTOR,
}


@each_row(
    ("changes", "expected"),
    [
        ({"turn_rewards": MATRIX}, other_rank("turn_rewards", 1, MATRIX)),
        ({"token_rewards": VECTOR}, other_rank("token_rewards", 2, VECTOR)),
        ({"parents": ALONE}, other_shape("parents", "turn_rewards", wanted=VECTOR, got=ALONE)),
        (
            {"final_values": ALONE},
            other_shape("final_values", "turn_rewards", wanted=VECTOR, got=ALONE),
        ),
        ({"turn_rewards": ALONE}, other_shape("parents", "turn_rewards", wanted=ALONE, got=VECTOR)),
        ({"values": NARROW}, other_shape("values", "token_rewards", wanted=MATRIX, got=NARROW)),
        ({"mask": NARROW}, other_shape("mask", "token_rewards", wanted=MATRIX, got=NARROW)),
        (
            {"token_rewards": NARROW},
            other_shape("values", "token_rewards", wanted=NARROW, got=MATRIX),
        ),
        (
            dict.fromkeys(("token_rewards", "values", "mask"), (1, 3)),
            other_shape("rows", "turn_rewards", wanted=VECTOR, got=ALONE),
        ),
    ],
)
def test_a_forest_whose_tensors_do_not_fit_is_refused(changes, expected):
    options = {"discount": 1.0, "turn_discount": 1.0, "decay": 1.0}
    guarded = Guarded(turns.tree_gae, " ".join(TREE), options)

    assert expected == guarded.refusal(**{**TREE, **changes})
