"""What the probes of a set have in common, by their words and marks alone.

Slots are filled independently of each other, the words of a template come together. So a set is
divided by the word that says most about which other words are there, as long as that pays, and what
nearly all of a group say is its part. The criterion is the extended BIC: a pair of words counts as
associated where the log-likelihood it gains exceeds half the log of the number of texts plus the
log of the number of words (gamma 0.5), and naming the dividing word costs that log once more.

Sources:
    Foygel and Drton, Extended Bayesian information criteria for Gaussian graphical models, NeurIPS
    2010 (the penalty); Williams and Lambert, Multivariate methods in plant ecology I, Journal of
    Ecology 47 (1959) (division by the attribute with the strongest associations).
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from astra_core.metrics.diversity import WORD_OR_MARK

Part = frozenset[str]
SHARED = 0.9
"""Share of a group that says a word of its part; the rest are stray members."""
TEMPLATE = 1 / 3
"""Share of what the texts of a group say that its part must be; a word or two make no template."""
_MIN_PROMPTS = 10
NEAR = 0.6
"""Jaccard similarity of two texts that are one template with other slots, where words are too few
to say so."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A word or mark of a text, as people compare it, and where it stands."""

    name: str
    start: int
    end: int


def pieces_of(text: str) -> list[Piece]:
    """The words and marks of a text, in order."""
    return [Piece(own[0].lower(), own.start(), own.end()) for own in WORD_OR_MARK.finditer(text)]


def only(text: str, pieces: Sequence[Piece]) -> str:
    """What is left of a text if only these pieces of it stay, spaces between them kept."""
    told = ""
    for at, piece in enumerate(pieces):
        gap = text[pieces[at - 1].end : piece.start] if at else ""
        told += (" " if any(letter.isspace() for letter in gap) else "") + text[
            piece.start : piece.end
        ]
    return told


def names_of(text: str) -> Part:
    """The different words and marks of a text."""
    return frozenset(piece.name for piece in pieces_of(text))


def common_names(prompts: Collection[str]) -> Part:
    """The words and marks in at least half of the prompts; none where prompts are few.

    Such are articles and full stops. That two probes have them too says nothing about either.
    """
    counts = Counter(name for text in prompts for name in names_of(text))
    is_known = len(prompts) >= _MIN_PROMPTS
    return frozenset(own for own, count in counts.items() if is_known and 2 * count >= len(prompts))


def shared_parts(texts: Sequence[str], common: Part = frozenset()) -> list[Part]:
    """For each text the part that it shares with its group; all of its words if there is none.

    ``common``: names that tell no groups apart, and are in no part.
    """
    told = [names_of(text) - common for text in texts]
    found = list(told)
    for group in _groups(told):
        part = _template([told[index] for index in group])
        for index in group:
            if part and 2 * len(part & told[index]) >= len(part):
                found[index] = part
    return smallest(found)


def smallest(parts: Sequence[Part]) -> list[Part]:
    """The parts, each as the smallest of them that it contains: more words add nothing to it.

    A rarer part does not count: a chance hit makes one that is too small.
    """
    counts = Counter(parts)
    every = sorted({*parts} - {frozenset()}, key=lambda own: (len(own), sorted(own)))
    least = {
        own: next((each for each in every if each <= own and counts[each] >= counts[own]), own)
        for own in counts
    }
    return [least[own] for own in parts]


def _shared_part(said: Sequence[Part]) -> Part:
    counts = Counter(name for own in said for name in own)
    return frozenset(name for name, count in counts.items() if count >= SHARED * len(said))


def _template(said: Sequence[Part]) -> Part:
    """What the texts share; nothing if that is too little to be a template."""
    part = _shared_part(said)
    return part if len(part) * len(said) >= TEMPLATE * sum(map(len, said)) else frozenset()


def _groups(said: Sequence[Part]) -> list[list[int]]:
    """The indices of the texts, by group."""
    done, undivided = [], [list(range(len(said)))]
    while undivided:
        group = undivided.pop()
        own = [said[index] for index in group]
        name = _dividing(own)
        halves = [
            [index for index in group if (name in said[index]) is has] for has in (False, True)
        ]
        if name and _is_better(own, [[said[index] for index in half] for half in halves]):
            undivided += halves
        else:
            done += [[group[index] for index in each] for each in _near_copies(own)]
    return done


def _is_better(said: Sequence[Part], halves: Sequence[Sequence[Part]]) -> bool:
    """Whether these halves are templates of their own, and not one with something in a slot."""
    part, parts = _template(said), [_shared_part(half) for half in halves]
    if not part or not all(part <= own for own in parts):
        return True
    return all(len(own) > len(part) for own in parts)


def _near_copies(said: Sequence[Part]) -> list[list[int]]:
    """Groups of texts that are nearly equal; one of all where few have such another.

    Of two or three texts no association of words can be told from chance.
    """
    from scipy.sparse.csgraph import connected_components

    sizes = np.array([len(own) for own in said])
    if len(said) < 2 or len(_shared_part(said)) >= NEAR * sizes.mean():
        return [list(range(len(said)))]
    present = _presence(said, sorted(frozenset().union(*said)))
    both = present @ present.T
    near = both >= NEAR * (sizes[:, None] + sizes[None, :] - both)
    count, labels = connected_components(near, directed=False)
    groups = [np.flatnonzero(labels == label).tolist() for label in range(count)]
    copies = [group for group in groups if len(group) > 1]
    # A chain of texts, each a little like the next, is one template with slots.
    is_divided = (
        len(copies) > 1
        and 2 * sum(map(len, copies)) >= len(said)
        and all(near[np.ix_(group, group)].all() for group in copies)
    )
    return groups if is_divided else [list(range(len(said)))]


def _presence(said: Sequence[Part], names: Sequence[str]) -> NDArray[np.float64]:
    """1 where a text (row) says a word (column)."""
    column = {name: place for place, name in enumerate(names)}
    present = np.zeros((len(said), len(names)))
    for row, own in enumerate(said):
        present[row, [column[name] for name in own if name in column]] = 1.0
    return present


def _dividing(said: Sequence[Part]) -> str:
    """The name by which to divide these texts; empty where none pays."""
    counts = Counter(name for own in said for name in own)
    # Sorted: the order of a set differs from process to process.
    names = sorted(name for name, count in counts.items() if 1 < count < len(said))
    if not names:
        return ""
    cost = math.log(len(names))
    excess = _associations(_presence(said, names)) - cost - math.log(len(said)) / 2
    np.fill_diagonal(excess, 0.0)
    # Rounded, so that equal scores are equal wherever arrays lie in memory.
    gains = np.maximum(excess, 0.0)
    scores = (gains.sum(axis=1) - np.minimum(gains.max(axis=1), cost)).round(6)
    best = int(scores.argmax())
    return names[best] if scores[best] > 0 else ""


def _associations(present: NDArray[np.float64]) -> NDArray[np.float64]:
    """Nats by which each pair of columns is likelier together; 0 where it avoids each other."""
    total = len(present)
    own = present.sum(axis=0)
    both = present.T @ present
    one, other = own[:, None], own[None, :]
    cells = (both, one - both, other - both, total - one - other + both)
    joint = sum(map(_entropy_term, cells)) + _entropy_term(np.array(float(total)))
    apart = _entropy_term(own) + _entropy_term(total - own)
    gained = joint - apart[:, None] - apart[None, :]
    return np.asarray(np.where(both * total > one * other, gained, 0.0))


def _entropy_term(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(counts * np.log(np.maximum(counts, 1.0)))
