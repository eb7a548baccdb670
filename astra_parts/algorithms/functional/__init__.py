"""The mathematics of the algorithms beside DPO; axes, units and errors as in the core's own.

What every algorithm may use (masks, KL estimates, credit over trees, losses over pairs) is in
``astra_core.algorithms.functional``.
"""

from astra_parts.algorithms.functional.advantages import (
    gae,
    n_step_returns,
    reward_to_go,
    token_gae,
)
from astra_parts.algorithms.functional.aggregation import (
    Aggregation,
    WeightedSum,
    aggregate,
    aggregation_weight,
    aggregation_weights,
)
from astra_parts.algorithms.functional.ast_reward import (
    ast_rewards,
    excess_nll,
    mean_logprob,
    sequence_probability,
)
from astra_parts.algorithms.functional.divergences import divergence_scores
from astra_parts.algorithms.functional.groups import (
    AdvantageScale,
    clipped_rewards,
    group_advantages,
    group_advantages_over_runs,
    leave_one_out,
    mean_baseline_advantages,
    running_mean,
)
from astra_parts.algorithms.functional.imitation import (
    distillation_advantages,
    nll_losses,
    reward_weighted_probabilities,
    selection_size,
    threshold_selection,
    top_k_selection,
)
from astra_parts.algorithms.functional.kl import (
    adaptive_coefficient,
    importance_weighted_kl,
    kl_penalised_rewards,
    stepped_coefficient,
)
from astra_parts.algorithms.functional.margin_losses import (
    balance_losses,
    cdpo_losses,
    hinge_losses,
    ipo_losses,
    robust_dpo_losses,
)
from astra_parts.algorithms.functional.policy_gradient import (
    clipped_surrogate,
    importance_sampling_surrogate,
    is_clipped,
    is_dual_clipped,
    reinforce_surrogate,
    truncated_surrogate,
    value_losses,
)
from astra_parts.algorithms.functional.preference_variants import (
    aot_losses,
    apo_down_losses,
    apo_zero_losses,
    bco_losses,
    discopop_losses,
    exo_losses,
    nca_losses,
    sppo_losses,
)
from astra_parts.algorithms.functional.soft_clipping import soft_surrogate
from astra_parts.algorithms.functional.turns import tree_gae

__all__ = [
    "AdvantageScale",
    "Aggregation",
    "WeightedSum",
    "adaptive_coefficient",
    "aggregate",
    "aggregation_weight",
    "aggregation_weights",
    "aot_losses",
    "apo_down_losses",
    "apo_zero_losses",
    "ast_rewards",
    "balance_losses",
    "bco_losses",
    "cdpo_losses",
    "clipped_rewards",
    "clipped_surrogate",
    "discopop_losses",
    "distillation_advantages",
    "divergence_scores",
    "excess_nll",
    "exo_losses",
    "gae",
    "group_advantages",
    "group_advantages_over_runs",
    "hinge_losses",
    "importance_sampling_surrogate",
    "importance_weighted_kl",
    "ipo_losses",
    "is_clipped",
    "is_dual_clipped",
    "kl_penalised_rewards",
    "leave_one_out",
    "mean_baseline_advantages",
    "mean_logprob",
    "n_step_returns",
    "nca_losses",
    "nll_losses",
    "reinforce_surrogate",
    "reward_to_go",
    "reward_weighted_probabilities",
    "robust_dpo_losses",
    "running_mean",
    "selection_size",
    "sequence_probability",
    "soft_surrogate",
    "sppo_losses",
    "stepped_coefficient",
    "threshold_selection",
    "token_gae",
    "top_k_selection",
    "tree_gae",
    "truncated_surrogate",
    "value_losses",
]
