"""The mathematics of the algorithms beside DPO; axes, units and errors as in the core's own.

What every algorithm may use (masks, KL estimates, credit over trees, losses over pairs) is in
``astra_core.algorithms.functional``.
"""

from astra_parts.algorithms.functional.advantages import (
    gae as gae,
    n_step_returns as n_step_returns,
    reward_to_go as reward_to_go,
    token_gae as token_gae,
)
from astra_parts.algorithms.functional.aggregation import (
    Aggregation as Aggregation,
    aggregate as aggregate,
    aggregation_weight as aggregation_weight,
    aggregation_weights as aggregation_weights,
)
from astra_parts.algorithms.functional.divergences import divergence_scores as divergence_scores
from astra_parts.algorithms.functional.groups import (
    AdvantageScale as AdvantageScale,
    group_advantages as group_advantages,
    group_advantages_over_runs as group_advantages_over_runs,
    leave_one_out as leave_one_out,
    mean_baseline_advantages as mean_baseline_advantages,
    running_mean as running_mean,
)
from astra_parts.algorithms.functional.imitation import (
    distillation_advantages as distillation_advantages,
    reward_weighted_probabilities as reward_weighted_probabilities,
    selection_size as selection_size,
    threshold_selection as threshold_selection,
    top_k_selection as top_k_selection,
)
from astra_parts.algorithms.functional.kl import (
    adaptive_coefficient as adaptive_coefficient,
    importance_weighted_kl as importance_weighted_kl,
    kl_penalised_rewards as kl_penalised_rewards,
    stepped_coefficient as stepped_coefficient,
)
from astra_parts.algorithms.functional.lookahead import lookahead_gradient as lookahead_gradient
from astra_parts.algorithms.functional.margin_losses import (
    balance_losses as balance_losses,
    cdpo_losses as cdpo_losses,
    hinge_losses as hinge_losses,
    ipo_losses as ipo_losses,
    robust_dpo_losses as robust_dpo_losses,
)
from astra_parts.algorithms.functional.policy_gradient import (
    clipped_surrogate as clipped_surrogate,
    importance_sampling_surrogate as importance_sampling_surrogate,
    is_clipped as is_clipped,
    is_dual_clipped as is_dual_clipped,
    reinforce_surrogate as reinforce_surrogate,
    soft_surrogate as soft_surrogate,
    truncated_surrogate as truncated_surrogate,
    value_losses as value_losses,
)
from astra_parts.algorithms.functional.preference_variants import (
    aot_losses as aot_losses,
    apo_down_losses as apo_down_losses,
    apo_zero_losses as apo_zero_losses,
    bco_losses as bco_losses,
    discopop_losses as discopop_losses,
    exo_losses as exo_losses,
    nca_losses as nca_losses,
    sppo_losses as sppo_losses,
)
from astra_parts.algorithms.functional.turns import tree_gae as tree_gae
