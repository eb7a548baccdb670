"""Losses over pairs: a probe and a sibling that did worse.

Every loss takes log-ratios ``log attacker(probe) - log reference(probe)``, in nats, one per
sequence, and returns one loss per pair, so that a trainer sums over its whole window and divides
once. With ``h = chosen - rejected`` all of them pull ``h`` up; they differ in where they stop.
``beta`` is the strength of the pull to the reference, positive, and ``label_smoothing`` the
probability of a flipped pair, in [0, 0.5). Whether a log-ratio is a sum over tokens or a mean is
decided by ``sequence_log_ratios``, in one place for all of them.
"""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from astra_core.algorithms.functional.margins import (
    margins,
    require_label_smoothing,
    scaled_margins,
)
from astra_core.algorithms.functional.masking import masked_mean, masked_sum
from astra_core.algorithms.functional.shapes import require_rank, require_same_shape
from astra_core.errors import ConfigurationError

Divergence = Literal["reverse_kl", "forward_kl", "jensen_shannon", "alpha"]
"""``reverse_kl`` is DPO itself; ``alpha`` lies between it, at 0, and ``forward_kl``, at 1."""


def sequence_log_ratios(
    logprobs: Float[Tensor, "B T"],
    other_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    length_normalised: bool = False,
) -> Float[Tensor, " B"]:
    """Log of how much likelier each sequence is under the first model than under the second.

    Args:
        logprobs: Of the attacker, in nats; the gradient flows through these.
        other_logprobs: Of the reference or of the policy that sampled; its gradient is cut.
        mask: True at the tokens of the probe; context and padding are False.
        length_normalised: Mean over the tokens instead of the sum. The sum favours whichever of two
            probes is longer once their per-token ratios agree (TRL's ``sigmoid_norm`` and ``ipo``,
            and the sequence ratio of GSPO, arXiv:2507.18071, eq. 7, divide; ASTRA-RL sums).

    Returns:
        Nats, or nats per token; 0 for a sequence without tokens.
    """
    require_rank(2, logprobs=logprobs)
    require_same_shape(logprobs=logprobs, other_logprobs=other_logprobs, mask=mask)
    reduce = masked_mean if length_normalised else masked_sum
    return reduce(logprobs - other_logprobs.detach(), mask, dim=-1)


def dpo_losses(
    chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"], *, beta: float
) -> Float[Tensor, " N"]:
    """Negative log-likelihood of the preference under Bradley and Terry: ``-log sigmoid(beta h)``.

    Source:
        Rafailov et al., arXiv:2305.18290, eq. 7.
    """
    return -logsigmoid(scaled_margins(chosen, rejected, beta))


def cdpo_losses(
    chosen: Float[Tensor, " N"],
    rejected: Float[Tensor, " N"],
    *,
    beta: float,
    label_smoothing: float,
) -> Float[Tensor, " N"]:
    """DPO that assumes a share ``label_smoothing`` of the pairs to be flipped.

    ``-(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h)``: the loss turns at
    ``sigmoid(beta h) = 1 - e``, so a pair already told apart that well is left alone.

    Source:
        Mitchell, https://ericmitchell.ai/cdpo.pdf, eq. 3 (conservative DPO).
    """
    require_label_smoothing(label_smoothing)
    scaled = scaled_margins(chosen, rejected, beta)
    return -(1 - label_smoothing) * logsigmoid(scaled) - label_smoothing * logsigmoid(-scaled)


def robust_dpo_losses(
    chosen: Float[Tensor, " N"],
    rejected: Float[Tensor, " N"],
    *,
    beta: float,
    label_smoothing: float,
) -> Float[Tensor, " N"]:
    """DPO corrected so that its mean over flipped labels is the loss of the clean ones.

    ``(-(1 - e) log sigmoid(beta h) + e log sigmoid(-beta h)) / (1 - 2 e)``. Not bounded below for a
    single pair, unlike ``cdpo_losses``.

    Source:
        Chowdhury, Kini and Natarajan, arXiv:2403.00409 (robust DPO).
    """
    require_label_smoothing(label_smoothing)
    scaled = scaled_margins(chosen, rejected, beta)
    clean = -(1 - label_smoothing) * logsigmoid(scaled) + label_smoothing * logsigmoid(-scaled)
    return clean / (1 - 2 * label_smoothing)


def ipo_losses(
    chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"], *, beta: float
) -> Float[Tensor, " N"]:
    """Squared distance of the margin from ``1 / (2 beta)``, so that no pair is pushed without end.

    Pass sums of log-probabilities to get the paper's and ASTRA-RL's loss, means
    (``sequence_log_ratios(..., length_normalised=True)``) to get TRL's; tune ``beta`` again after a
    change from one to the other.

    Args:
        beta: Half the inverse of the wanted margin in nats; positive.

    Returns:
        Squared nats.

    Source:
        Azar et al., arXiv:2310.12036, eq. 17.
    """
    return (margins(chosen, rejected, beta) - 1 / (2 * beta)).square()


def balance_losses(
    chosen: Float[Tensor, " N"],
    rejected: Float[Tensor, " N"],
    gaps: Float[Tensor, " N"],
    *,
    temperature: float,
) -> Float[Tensor, " N"]:
    """Squared distance of the margin from the gap in reward over a temperature.

    It is 0 for all pairs of siblings exactly if the policy is the reference times
    ``exp(reward / temperature)``, normalised. The order within a pair is of no matter.

    Args:
        temperature: Reward units per nat; positive.

    Returns:
        Squared nats.

    Raises ConfigurationError if ``temperature`` is not positive.

    Source:
        Trajectory balance, arXiv:2201.13259, eq. 14, as a difference of two trajectories:
        arXiv:2605.00553; REBEL, arXiv:2404.16767, eq. 1.
    """
    if not temperature > 0:
        msg = f"temperature must be positive, got {temperature}; 0.1 makes a gap of 1 ten nats"
        raise ConfigurationError(msg)
    require_same_shape(chosen=chosen, rejected=rejected, gaps=gaps)
    require_rank(1, chosen=chosen)
    return (chosen - rejected - gaps / temperature).square()


def hinge_losses(
    chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"], *, beta: float
) -> Float[Tensor, " N"]:
    """How far the scaled margin falls short of one: ``max(0, 1 - beta h)``.

    Args:
        beta: Inverse of the wanted margin in nats; positive.

    Source:
        SLiC, arXiv:2305.10425, on log-ratios as in RSO, arXiv:2309.06657.
    """
    return (1 - scaled_margins(chosen, rejected, beta)).relu()


@dataclass(frozen=True, slots=True)
class PreferenceMetrics:
    """Diagnostics of a pair loss, one entry per pair and without gradient; average them to log.

    Attributes:
        chosen_rewards: Implicit reward ``beta * log-ratio`` of the better probe.
        accuracies: 1 where the margin is positive, else 0; a tie is not a success.
    """

    chosen_rewards: Float[Tensor, " N"]
    rejected_rewards: Float[Tensor, " N"]
    margins: Float[Tensor, " N"]
    accuracies: Float[Tensor, " N"]


def preference_metrics(
    chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"], *, beta: float
) -> PreferenceMetrics:
    """Implicit rewards of both sides and how often they order the pair correctly.

    Source:
        Rafailov et al., arXiv:2305.18290, section 4 (the partition function cancels in the margin).
    """
    scaled = scaled_margins(chosen, rejected, beta).detach()
    return PreferenceMetrics(
        chosen_rewards=beta * chosen.detach(),
        rejected_rewards=beta * rejected.detach(),
        margins=scaled,
        accuracies=(scaled > 0).to(scaled.dtype),
    )


def on_policy_weights(
    logprobs: Float[Tensor, "B T"],
    collision_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
) -> Float[Tensor, " B"]:
    """How likely each sequence is for the attacker as it is, relative to what it draws itself.

    ``exp(mean over tokens of log p - log sum p^2)``: 1 where the attacker is as sure of these
    tokens as of its own. A pair's loss is multiplied by the weights of both its sides.

    Args:
        logprobs: Of the attacker, in nats.
        collision_logprobs: Log of the sum over the vocabulary of squared probabilities, where each
            token was drawn.
        mask: True at the tokens of the probe.

    Returns:
        Positive weights without gradient; 1 for a sequence without tokens.

    Source:
        Zhou et al., WPO, arXiv:2406.11827, eq. 2 and section 3.2 (sampled alignment).
    """
    require_rank(2, logprobs=logprobs)
    require_same_shape(logprobs=logprobs, collision_logprobs=collision_logprobs, mask=mask)
    return masked_mean((logprobs - collision_logprobs).detach(), mask, dim=-1).exp()


def copied_pair_losses(
    logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    """Negative log-likelihood per token of each sequence, to be added for the better probes.

    Args:
        logprobs: Of the attacker, in nats; the gradient flows through these.
        mask: True at the tokens of the probe.

    Returns:
        Nats per token; 0 for a sequence without tokens.

    Source:
        Pang et al., iterative reasoning preference optimisation, arXiv:2404.19733, eq. 2.
    """
    require_rank(2, logprobs=logprobs)
    return -masked_mean(logprobs, mask, dim=-1)
