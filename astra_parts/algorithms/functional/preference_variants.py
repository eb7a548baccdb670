"""More losses over pairs: of the margin, or of each side of a pair by itself.

As in ``preference``, each takes log-ratios in nats, one per sequence, and returns one loss per
pair. The losses of the margin see only how far the two are apart. Those of the sides also say where
each has to go: whether the better probe itself must become likelier than under the reference.
"""

import math

from torch.nn.functional import logsigmoid

from astra_core.algorithms.functional.margins import PerPair, require_pairs, scaled_margins
from astra_core.errors import ConfigurationError
from astra_parts.algorithms.functional.margin_losses import require_label_smoothing

# Of the mixture of two losses in DiscoPOP: over how much of the margin one becomes the other.
_DISCOPOP_TEMPERATURE = 0.05


def exo_losses(
    chosen: PerPair, rejected: PerPair, *, beta: float, label_smoothing: float
) -> PerPair:
    """Reverse KL from the attacker's preference to the label, of which a share is flipped.

    With ``s = sigmoid(beta h)``: ``s log(s / (1 - e)) + (1 - s) log((1 - s) / e)``. It is 0 at
    ``s = 1 - e`` and seeks that mode, where ``cdpo_losses``, the forward KL, covers both.

    ``label_smoothing``: probability of a flipped pair, in (0, 0.5).

    Source: Ji et al., EXO, arXiv:2402.00856, eq. 16.
    """
    require_label_smoothing(label_smoothing)
    if label_smoothing == 0:
        msg = "label_smoothing must be above 0 for exo, got 0; 0.001 is usual"
        raise ConfigurationError(msg)
    scaled = scaled_margins(chosen, rejected, beta)
    right = scaled.sigmoid() * (logsigmoid(scaled) - math.log1p(-label_smoothing))
    wrong = (-scaled).sigmoid() * (logsigmoid(-scaled) - math.log(label_smoothing))
    return right + wrong


def discopop_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """A mixture of logistic and exponential loss that was found by search.

    With ``m = sigmoid(beta h / 0.05)``: ``-(1 - m) log sigmoid(beta h) + m exp(-beta h)``. Where
    the pair is the wrong way round it is DPO; from about ``beta h = 0.05`` on it is the exponential
    loss. Not convex.

    Source: Lu et al., DiscoPOP, arXiv:2406.08414, eq. 5.
    """
    scaled = scaled_margins(chosen, rejected, beta)
    cold = scaled / _DISCOPOP_TEMPERATURE
    # One exponential of a sum: far out sigmoid is 0 and exp infinite, and their product nan.
    exponential = (logsigmoid(cold) - scaled).exp()
    return exponential - (-cold).sigmoid() * logsigmoid(scaled)


def nca_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Noise contrastive alignment: each side by itself is distinguished from the reference.

    ``-log sigmoid(beta c) - (log sigmoid(-beta c) + log sigmoid(-beta r)) / 2`` with the log-ratios
    ``c`` and ``r`` of the two. Unlike DPO it keeps the better probe from becoming less likely.

    Source: Chen et al., NCA, arXiv:2402.05369, eq. 11, for pairs.
    """
    good, bad = _scaled_sides(chosen, rejected, beta)
    return -logsigmoid(good) - 0.5 * logsigmoid(-good) - 0.5 * logsigmoid(-bad)


def bco_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Binary classifier: better probes above the reference, their siblings below.

    ``-log sigmoid(beta c) - log sigmoid(-beta r)``, an upper bound of DPO's loss. Without the
    paper's reward shift, a mean over earlier batches, as TRL's ``bco_pair``.

    Source: Jung et al., BCO, arXiv:2404.04656, eq. 8.
    """
    good, bad = _scaled_sides(chosen, rejected, beta)
    return -logsigmoid(good) - logsigmoid(-bad)


def sppo_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Squared distances: of the better log-ratio from ``1 / (2 beta)``, of the other from minus it.

    The hard form, in which a winner wins with certainty.

    ``beta``: half the inverse of where each is to go, in nats; positive.

    Returns squared nats.

    Source: Wu et al., SPPO, arXiv:2405.00675, eq. 4.7 with probabilities 1 and 0.
    """
    require_pairs(chosen, rejected, beta)
    goal = 0.5 / beta
    return (chosen - goal).square() + (rejected + goal).square()


def apo_zero_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Anchored losses: better probes up and siblings down, each relative to the reference.

    ``sigmoid(-beta c) + sigmoid(beta r)``, for pairs whose winner beats the attacker's usual probe.

    Source: D'Oosterlinck et al., APO, arXiv:2408.06266, eq. 7.
    """
    good, bad = _scaled_sides(chosen, rejected, beta)
    return (-good).sigmoid() + bad.sigmoid()


def apo_down_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Anchored losses: both probes down, the sibling further.

    ``sigmoid(beta c) + sigmoid(-beta (c - r))``, for pairs whose winner is worse than the
    attacker's usual probe.

    Source: D'Oosterlinck et al., APO, arXiv:2408.06266, eq. 8.
    """
    good, bad = _scaled_sides(chosen, rejected, beta)
    return good.sigmoid() + (bad - good).sigmoid()


def aot_losses(chosen: PerPair, rejected: PerPair, *, beta: float) -> PerPair:
    """Losses that put each quantile of the better probes above the siblings' same quantile.

    ``-log sigmoid(beta (c_(i) - r_(i)))``, where ``c_(i)`` and ``r_(i)`` are the i-th smallest of
    each side. The one loss here that looks at several pairs at once.

    Returns one loss per rank, not per pair.

    Source: Melnyk et al., AOT, arXiv:2406.05882, unpaired; the ``aot_unpaired`` of TRL.
    """
    good, bad = _scaled_sides(chosen, rejected, beta)
    return -logsigmoid(good.sort().values - bad.sort().values)


def _scaled_sides(chosen: PerPair, rejected: PerPair, beta: float) -> tuple[PerPair, PerPair]:
    """Both log-ratios times ``beta``: the implicit rewards of the two probes."""
    require_pairs(chosen, rejected, beta)
    return beta * chosen, beta * rejected
