"""Pure mathematics of the algorithms: functions of tensors, without configuration or state.

Axes: ``B`` sequences, ``T`` tokens (or turns), ``V`` vocabulary, ``P`` prompts, ``G`` rollouts per
prompt, ``N`` pairs, rollouts or nodes. Log-probabilities and ratios are in nats. Losses are to be
minimised and come per pair or per token; ``aggregate`` makes one number of them. Every result is
finite and defined for an empty batch, a single sample and a row without tokens. Inputs at masked
positions that need a gradient have to be finite.

Every function raises ``ShapeError`` where its tensors do not fit each other, ``DataError`` for a
reward that is NaN or infinite, and ``ConfigurationError`` for a number outside its range.
"""

from astra_core.algorithms.functional.credit import (
    Backup,
    backed_up_rewards,
    preference_pairs,
    sibling_groups,
    visit_weights,
)
from astra_core.algorithms.functional.groups import num_flat_groups
from astra_core.algorithms.functional.kl import KLEstimator, kl_estimates
from astra_core.algorithms.functional.masking import (
    MIN_SPREAD,
    masked_count,
    masked_mean,
    masked_sum,
    masked_variance,
    masked_whiten,
)
from astra_core.algorithms.functional.off_policy import (
    importance_ratios,
    is_near_policy,
    off_policy_weights,
)
from astra_core.algorithms.functional.preference import (
    Divergence,
    PreferenceMetrics,
    copied_pair_losses,
    dpo_losses,
    on_policy_weights,
    preference_metrics,
    sequence_log_ratios,
)

__all__ = [
    "MIN_SPREAD",
    "Backup",
    "Divergence",
    "KLEstimator",
    "PreferenceMetrics",
    "backed_up_rewards",
    "copied_pair_losses",
    "dpo_losses",
    "importance_ratios",
    "is_near_policy",
    "kl_estimates",
    "masked_count",
    "masked_mean",
    "masked_sum",
    "masked_variance",
    "masked_whiten",
    "num_flat_groups",
    "off_policy_weights",
    "on_policy_weights",
    "preference_metrics",
    "preference_pairs",
    "sequence_log_ratios",
    "sibling_groups",
    "visit_weights",
]
