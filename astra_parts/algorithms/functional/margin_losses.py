"""Losses of the margin beside DPO's own; axes, units and checks as in ``preference``."""

from torch.nn.functional import logsigmoid

from astra_core.algorithms.functional.margins import PerPair, margins, scaled_margins
from astra_core.algorithms.functional.shapes import (
    require_positive,
    require_rank,
    require_same_shape,
)
from astra_core.errors import ConfigurationError


def cdpo_losses(
    chosen: PerPair, rejected: PerPair, *, beta: float, label_smoothing: float
) -> PerPair:
    """DPO that assumes a share ``label_smoothing`` of the pairs to be flipped.

    ``-(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h)``: the loss turns at
    ``sigmoid(beta h) = 1 - e``, so a pair already told apart that well is left alone.

    Source: Mitchell, https://ericmitchell.ai/cdpo.pdf, eq. 3 (conservative DPO).
    """
    require_label_smoothing(label_smoothing)
    scaled = scaled_margins(chosen, rejected, beta)
    return -(1 - label_smoothing) * logsigmoid(scaled) - label_smoothing * logsigmoid(-scaled)


def robust_dpo_losses(
    chosen: PerPair, rejected: PerPair, *, beta: float, label_smoothing: float
) -> PerPair:
    """DPO corrected so that its mean over flipped labels is the loss of the clean ones.

    ``(-(1 - e) log sigmoid(beta h) + e log sigmoid(-beta h)) / (1 - 2 e)``. Not bounded below for a
    single pair, unlike ``cdpo_losses``.

    Source: Chowdhury, Kini and Natarajan, arXiv:2403.00409 (robust DPO).
    """
    require_label_smoothing(label_smoothing)
    scaled = scaled_margins(chosen, rejected, beta)
    clean = -(1 - label_smoothing) * logsigmoid(scaled) + label_smoothing * logsigmoid(-scaled)
    return clean / (1 - 2 * label_smoothing)


def ipo_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Squared distance of the margin from ``1 / (2 beta)``, so that no pair is pushed without end.

    Pass sums of log-probabilities to get the paper's and ASTRA-RL's loss, means
    (``sequence_log_ratios(..., length_normalised=True)``) to get TRL's; tune ``beta`` again after a
    change from one to the other.

    ``beta``: half the inverse of the wanted margin in nats; positive.

    Returns squared nats.

    Source: Azar et al., arXiv:2310.12036, eq. 17.
    """
    return (margins(chosen, rejected, beta) - 1 / (2 * beta)).square()


def balance_losses(
    chosen: PerPair, rejected: PerPair, gaps: PerPair, *, temperature: float
) -> PerPair:
    """Squared distance of the margin from the gap in reward over a temperature.

    It is 0 for all pairs of siblings exactly if the policy is the reference times
    ``exp(reward / temperature)``, normalised. The order within a pair is of no matter.

    Returns squared nats.

    Raises ConfigurationError if ``temperature`` is not positive.

    Source: Trajectory balance, arXiv:2201.13259, eq. 14, as a difference of two trajectories:
    arXiv:2605.00553; REBEL, arXiv:2404.16767, eq. 1.
    """
    require_positive("0.1 makes a gap of 1 ten nats", temperature=temperature)
    require_same_shape(chosen=chosen, rejected=rejected, gaps=gaps)
    require_rank(1, chosen=chosen)
    return (chosen - rejected - gaps / temperature).square()


def hinge_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """How far the scaled margin falls short of one: ``max(0, 1 - beta h)``.

    ``beta``: inverse of the wanted margin in nats; positive.

    Source: SLiC, arXiv:2305.10425, on log-ratios as in RSO, arXiv:2309.06657.
    """
    return (1 - scaled_margins(chosen, rejected, beta)).relu()


def require_label_smoothing(label_smoothing: float) -> None:
    """Raises ConfigurationError unless it is a share of flipped pairs that a loss can correct."""
    if not 0 <= label_smoothing < 0.5:
        msg = (
            f"label_smoothing must lie in [0, 0.5), got {label_smoothing}; "
            "at one half a label says nothing"
        )
        raise ConfigurationError(msg)
