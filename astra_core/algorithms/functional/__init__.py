"""Pure mathematics of the algorithms: functions of tensors, without configuration or state.

Axes: ``B`` sequences, ``T`` tokens (or turns), ``V`` vocabulary, ``P`` prompts, ``G`` rollouts per
prompt, ``N`` pairs, rollouts or nodes. Log-probabilities and ratios are in nats. Losses are to be
minimised and come per pair or per token; ``aggregate`` makes one number of them. Every result is
finite and defined for an empty batch, a single sample and a row without tokens. Inputs at masked
positions that need a gradient have to be finite.

Every function raises ``ShapeError`` where its tensors do not fit each other, ``DataError`` for a
reward that is NaN or infinite, and ``ConfigurationError`` for a number outside its range.
"""

from astra_core.algorithms.functional.advantages import gae, n_step_returns, reward_to_go, token_gae
from astra_core.algorithms.functional.aggregation import (
    Aggregation,
    WeightedSum,
    aggregate,
    aggregation_weight,
    aggregation_weights,
)
from astra_core.algorithms.functional.ast_reward import (
    ast_rewards,
    excess_nll,
    mean_logprob,
    sequence_probability,
)
from astra_core.algorithms.functional.credit import (
    Backup,
    backed_up_rewards,
    clipped_rewards,
    preference_pairs,
    sibling_groups,
    visit_weights,
)
from astra_core.algorithms.functional.divergences import Divergence, divergence_scores
from astra_core.algorithms.functional.groups import (
    AdvantageScale,
    group_advantages,
    group_advantages_over_runs,
    leave_one_out,
    mean_baseline_advantages,
    num_flat_groups,
    running_mean,
)
from astra_core.algorithms.functional.imitation import (
    distillation_advantages,
    nll_losses,
    reward_weighted_probabilities,
    selection_size,
    threshold_selection,
    top_k_selection,
)
from astra_core.algorithms.functional.kl import (
    KLEstimator,
    adaptive_coefficient,
    importance_weighted_kl,
    kl_estimates,
    kl_penalised_rewards,
    stepped_coefficient,
)
from astra_core.algorithms.functional.masking import (
    MIN_SPREAD,
    masked_count,
    masked_mean,
    masked_sum,
    masked_variance,
    masked_whiten,
)
from astra_core.algorithms.functional.off_policy import is_near_policy, off_policy_weights
from astra_core.algorithms.functional.policy_gradient import (
    clipped_surrogate,
    importance_ratios,
    importance_sampling_surrogate,
    is_clipped,
    is_dual_clipped,
    reinforce_surrogate,
    truncated_surrogate,
    value_losses,
)
from astra_core.algorithms.functional.preference import (
    PreferenceMetrics,
    balance_losses,
    cdpo_losses,
    dpo_losses,
    hinge_losses,
    ipo_losses,
    preference_metrics,
    robust_dpo_losses,
    sequence_log_ratios,
)
from astra_core.algorithms.functional.preference_variants import (
    aot_losses,
    apo_down_losses,
    apo_zero_losses,
    bco_losses,
    copied_pair_losses,
    discopop_losses,
    exo_losses,
    nca_losses,
    on_policy_weights,
    sppo_losses,
)
from astra_core.algorithms.functional.soft_clipping import soft_surrogate
from astra_core.algorithms.functional.turns import tree_gae

__all__ = [
    "MIN_SPREAD",
    "AdvantageScale",
    "Aggregation",
    "Backup",
    "Divergence",
    "KLEstimator",
    "PreferenceMetrics",
    "WeightedSum",
    "adaptive_coefficient",
    "aggregate",
    "aggregation_weight",
    "aggregation_weights",
    "aot_losses",
    "apo_down_losses",
    "apo_zero_losses",
    "ast_rewards",
    "backed_up_rewards",
    "balance_losses",
    "bco_losses",
    "cdpo_losses",
    "clipped_rewards",
    "clipped_surrogate",
    "copied_pair_losses",
    "discopop_losses",
    "distillation_advantages",
    "divergence_scores",
    "dpo_losses",
    "excess_nll",
    "exo_losses",
    "gae",
    "group_advantages",
    "group_advantages_over_runs",
    "hinge_losses",
    "importance_ratios",
    "importance_sampling_surrogate",
    "importance_weighted_kl",
    "ipo_losses",
    "is_clipped",
    "is_dual_clipped",
    "is_near_policy",
    "kl_estimates",
    "kl_penalised_rewards",
    "leave_one_out",
    "masked_count",
    "masked_mean",
    "masked_sum",
    "masked_variance",
    "masked_whiten",
    "mean_baseline_advantages",
    "mean_logprob",
    "n_step_returns",
    "nca_losses",
    "nll_losses",
    "num_flat_groups",
    "off_policy_weights",
    "on_policy_weights",
    "preference_metrics",
    "preference_pairs",
    "reinforce_surrogate",
    "reward_to_go",
    "reward_weighted_probabilities",
    "robust_dpo_losses",
    "running_mean",
    "selection_size",
    "sequence_log_ratios",
    "sequence_probability",
    "sibling_groups",
    "soft_surrogate",
    "sppo_losses",
    "stepped_coefficient",
    "threshold_selection",
    "token_gae",
    "top_k_selection",
    "tree_gae",
    "truncated_surrogate",
    "value_losses",
    "visit_weights",
]
