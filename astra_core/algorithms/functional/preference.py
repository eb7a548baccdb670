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

from astra_core.algorithms.functional.margins import PerPair, scaled_margins
from astra_core.algorithms.functional.masking import masked_mean, masked_sum
from astra_core.algorithms.functional.shapes import require_alike, require_rank

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
        mask: True at the tokens of the probe; context and padding are False.
        length_normalised: Mean over the tokens instead of the sum. The sum favours whichever of two
            probes is longer once their per-token ratios agree (TRL's ``sigmoid_norm`` and ``ipo``,
            and the sequence ratio of GSPO, arXiv:2507.18071, eq. 7, divide; ASTRA-RL sums).

    Returns nats, or nats per token; 0 for a sequence without tokens.
    """
    require_alike(2, logprobs=logprobs, other_logprobs=other_logprobs, mask=mask)
    reduce = masked_mean if length_normalised else masked_sum
    return reduce(logprobs - other_logprobs.detach(), mask, dim=-1)


def dpo_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Negative log-likelihood of the preference under Bradley and Terry: ``-log sigmoid(beta h)``.

    Source: Rafailov et al., arXiv:2305.18290, eq. 7.
    """
    return -logsigmoid(scaled_margins(chosen, rejected, beta))


@dataclass(frozen=True, slots=True)
class PreferenceMetrics:
    """Diagnostics of a pair loss, one entry per pair and without gradient; average them to log.

    Attributes:
        chosen_rewards: Implicit reward ``beta * log-ratio`` of the better probe.
        accuracies: 1 where the margin is positive, else 0; a tie is not a success.
    """

    chosen_rewards: PerPair
    rejected_rewards: PerPair
    margins: PerPair
    accuracies: PerPair


def preference_metrics(chosen: PerPair, rejected: PerPair, *, beta: float) -> PreferenceMetrics:
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

    ``collision_logprobs``: log of the sum over the vocabulary of squared probabilities, where each
    token was drawn.

    Returns positive weights without gradient; 1 for a sequence without tokens.

    Source: Zhou et al., WPO, arXiv:2406.11827, eq. 2 and section 3.2 (sampled alignment).
    """
    require_alike(2, logprobs=logprobs, collision_logprobs=collision_logprobs, mask=mask)
    return masked_mean((logprobs - collision_logprobs).detach(), mask, dim=-1).exp()


def copied_pair_losses(
    logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, " B"]:
    """Negative log-likelihood per token of each sequence, to be added for the better probes.

    Returns nats per token; 0 for a sequence without tokens.

    Source: Pang et al., iterative reasoning preference optimisation, arXiv:2404.19733, eq. 2.
    """
    require_rank(2, logprobs=logprobs)
    return -masked_mean(logprobs, mask, dim=-1)
