"""Figures that a smaller sample would have, so that samples of different sizes compare.

The number of kinds, the entropy and the share of the largest kind of a sample all depend on how
large it is. Each function returns the expected figure of ``size`` items drawn without replacement:
exact where there is a formula, else the mean of seeded draws.

Source:
    Hurlbert, "The nonconcept of species diversity", Ecology 52 (1971), equation 6.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from astra_core.errors import DataError
from astra_core.seeding import derive_key, generator

NUM_DRAWS = 2000
"""Of a figure without a formula; its standard error is then under 0.005 for a share."""


def expected_kinds(counts: Sequence[int], size: int) -> float:
    """Expected number of kinds among ``size`` items, from 1 to ``size``.

    Raises DataError if ``size`` is not between 1 and the number of items.
    """
    found = _check_counts(counts, size)
    total = int(found.sum())
    return float((1.0 - np.exp(_log_absent(total - found, total, size))).sum())


def expected_entropy(counts: Sequence[int], size: int) -> float:
    """Expected entropy in nats of the kinds among ``size`` items, from 0 to ln ``size``.

    The count of a kind among them is hypergeometric, so the expectation is a finite sum.

    Raises DataError if ``size`` is not between 1 and the number of items.
    """
    from scipy.stats import hypergeom

    found = _check_counts(counts, size)
    drawn = np.arange(1, size + 1)
    terms = -(drawn / size) * np.log(drawn / size)
    values, repeats = np.unique(found, return_counts=True)
    chances = hypergeom.pmf(drawn[:, None], int(found.sum()), values[None, :], size)
    return float((terms @ chances) @ repeats)


def top_share(counts: Sequence[int], *, seed: int) -> float:
    """Share of the most frequent kind, from 1 / the number of kinds to 1, for any number of items.

    The largest of several counts is partly the luckiest. So one half of the items says which kind
    is the most frequent, the other what share it has; the mean over seeded halves.
    """
    found = np.asarray(counts, dtype=np.int64)
    total = int(found.sum())
    if total == 1:
        return 1.0
    rng = generator(derive_key(seed, "rarefaction"))
    chosen = rng.multivariate_hypergeometric(found, total // 2, size=NUM_DRAWS)
    is_top = chosen == chosen.max(axis=1, keepdims=True)
    others = ((found - chosen) * is_top).sum(axis=1) / is_top.sum(axis=1)
    # A kind that leads in one half of evenly divided items lags in the other.
    return max(float(others.mean()) / (total - total // 2), 1 / np.count_nonzero(found))


def expected_distinct_share(items: Sequence[Iterable[Hashable]], size: int) -> float:
    """Expected distinct items of ``size`` texts over their expected items, in [0, 1].

    Raises DataError if ``size`` is not between 1 and the number of texts.
    """
    texts = [list(each) for each in items]
    holders = Counter(item for each in texts for item in set(each))
    _check_counts([1] * len(texts), size)
    if not holders:
        return 0.0
    # Sorted: the order of a set of texts differs from process to process, and rounding with it.
    absent = len(texts) - np.array(sorted(holders.values()))
    distinct = (1.0 - np.exp(_log_absent(absent, len(texts), size))).sum()
    return float(distinct / (size * sum(map(len, texts)) / len(texts)))


def _log_absent(others: NDArray[np.int64], total: int, size: int) -> NDArray[np.float64]:
    """Log of C(others, size) / C(total, size), the chance that none of a kind is drawn."""
    from scipy.special import gammaln

    def log_choose(n: NDArray[np.int64] | int) -> NDArray[np.float64]:
        return np.asarray(gammaln(np.asarray(n) + 1.0) - gammaln(np.asarray(n) - size + 1.0))

    # Fewer than ``size`` others cannot fill a sample: gammaln is then infinite.
    return log_choose(others) - log_choose(total)


def _check_counts(counts: Sequence[int], size: int) -> NDArray[np.int64]:
    found = np.asarray(counts, dtype=np.int64)
    if not 1 <= size <= int(found.sum()):
        msg = f"a rarefied sample must be of 1 to {int(found.sum())} items, got {size}; draw fewer"
        raise DataError(msg)
    return found
