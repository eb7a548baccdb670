"""Pure mathematics of the algorithms: functions of tensors, without configuration or state.

Axes: ``B`` sequences, ``T`` tokens (or turns), ``V`` vocabulary, ``P`` prompts, ``G`` rollouts per
prompt, ``N`` pairs, rollouts or nodes. Log-probabilities and ratios are in nats; ``logprobs`` are
the attacker's and carry the gradient, a ``mask`` is True at the tokens of the probe, ``parents``
have the index of the turn before, -1 for a first turn, and a discount lies in [0, 1]. Losses are to
be minimised and come per pair or per token; ``aggregate`` makes one number of them. Every result is
finite and defined for an empty batch, a single sample and a row without tokens. Inputs at masked
positions that need a gradient have to be finite.

Every function raises ``ShapeError`` where its tensors do not fit each other, ``DataError`` for a
reward that is NaN or infinite, and ``ConfigurationError`` for a number outside its range.
"""

from astra_core.algorithms.functional.credit import (
    Backup as Backup,
    backed_up_rewards as backed_up_rewards,
    preference_pairs as preference_pairs,
    sibling_groups as sibling_groups,
    visit_weights as visit_weights,
)
from astra_core.algorithms.functional.groups import num_flat_groups as num_flat_groups
from astra_core.algorithms.functional.kl import (
    KLEstimator as KLEstimator,
    kl_estimates as kl_estimates,
)
from astra_core.algorithms.functional.masking import (
    MIN_SPREAD as MIN_SPREAD,
    masked_count as masked_count,
    masked_mean as masked_mean,
    masked_sum as masked_sum,
    masked_variance as masked_variance,
    masked_whiten as masked_whiten,
)
from astra_core.algorithms.functional.off_policy import (
    importance_ratios as importance_ratios,
    is_near_policy as is_near_policy,
    off_policy_weights as off_policy_weights,
)
from astra_core.algorithms.functional.preference import (
    Divergence as Divergence,
    PreferenceMetrics as PreferenceMetrics,
    copied_pair_losses as copied_pair_losses,
    dpo_losses as dpo_losses,
    on_policy_weights as on_policy_weights,
    preference_metrics as preference_metrics,
    sequence_log_ratios as sequence_log_ratios,
)
