"""What makes a hit a hit, asked of the target: the smallest rest of a probe that still hits.

Blocks of words and marks are taken away, rarest first, as long as what is left still hits, so that
the rest is what hits have in common; a block without which it misses is halved, down to one word.
A later hit that says a rest found before is asked one question: whether that rest alone hits too.
A target that is provoked in some of its replies only is asked each question several times, and one
hit among them counts; not if the rarest word of a hit does so too, since then it hits by chance.
A part that one hit alone has may be chance as well, so it speaks for no hit that was not asked.

Sources:
    Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, IEEE Transactions on
    Software Engineering 28 (2002); Feng et al., Pathologies of neural models make interpretations
    difficult, arXiv:1804.07781 (words taken from a text while the verdict stays).
"""

import math
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field

from astra_core.seeding import derive_key, generator
from astra_parts.metrics.parts import Part, Piece, only, pieces_of, shared_parts, smallest

Question = tuple[int, str]
"""The index of a hit, and a text to say in its place."""
Ask = Callable[[Sequence[Question]], Sequence[bool] | None]
"""For each question whether the text hits; None if nothing more can be asked."""
Reduction = Generator[tuple[int, ...], bool, Part | None]

AT_ONCE = 20
"""Hits that are looked at together: what the first have, the next are asked for in one question."""
REPEATING = 0.9
"""Share of hits that must hit again unchanged for one reply to say something about a word."""
OFTEN = 0.4
"""The same for several replies; below it they are too many."""
OVERLOOKED = 0.05
"""Share of hits that may miss in all of several replies."""
STRAY = 0.05
"""Share of hits whose rarest word alone may hit, where one hit of several replies counts."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What each hit is made of.

    Attributes:
        of: For each hit its part; equal parts are one strategy.
        num_asked: Hits whose part was found by asking; 0 if all parts are shared words.
    """

    of: Sequence[Part]
    calls: int = 0
    num_asked: int = 0


@dataclass(slots=True)
class _Asker:
    """Asks as long as the budget lasts, each question so many times: one hit among them counts."""

    ask: Ask
    left: int
    calls: int = 0
    times: int = 1

    def answers(self, questions: Sequence[Question]) -> Sequence[bool] | None:
        """One answer per question; None, from then on, if they are more than may be asked."""
        if not questions:
            return ()
        every = [question for question in questions for _ in range(self.times)]
        found = self.ask(every) if len(every) <= self.left else None
        self.left = 0 if found is None else self.left - len(every)
        self.calls += len(found or ())
        if found is None:
            return None
        return [any(found[at : at + self.times]) for at in range(0, len(every), self.times)]


@dataclass(slots=True)
class _Search:
    """The hits and what is known of them."""

    texts: Sequence[str]
    asker: _Asker
    pieces: list[list[Piece]] = field(init=False)
    rarity: Counter[str] = field(init=False)
    found: dict[int, Part] = field(default_factory=dict)
    asked_again: Counter[Part] = field(default_factory=Counter)
    confirmed: Counter[Part] = field(default_factory=Counter)
    is_believed: bool | None = None

    def __post_init__(self) -> None:
        self.pieces = [pieces_of(text) for text in self.texts]
        self.rarity = Counter(name for own in self.pieces for name in {each.name for each in own})

    def look_at(self, hits: Sequence[int]) -> None:
        """Finds the parts of these hits, as far as the budget lasts."""
        known = {index: part for index in hits if (part := self.known_part(index))}
        confirmed = self.asker.answers(
            [(index, self._rest(index, part)) for index, part in known.items()]
        )
        for (index, part), is_hit in zip(known.items(), confirmed or (), strict=False):
            self.asked_again[part] += 1
            if is_hit:
                self.found[index] = part
                self.confirmed[part] += 1
        self._reduce([index for index in hits if index not in self.found])

    def known_part(self, index: int) -> Part | None:
        """The most frequent part found so far that a hit says, if it hit for most that said it."""
        said = {piece.name for piece in self.pieces[index]}
        counts = Counter(self.found.values())
        for part in sorted(counts, key=lambda own: (-counts[own], sorted(own))):
            if part <= said and 2 * self.confirmed[part] >= self.asked_again[part]:
                return part
        return None

    def inferred_part(self, index: int) -> Part | None:
        """The part of a hit without a question; where replies vary, one that two hits have."""
        part = self.known_part(index)
        num_hits = sum(part == other for other in self.found.values())
        return part if num_hits > 1 or self.asker.times == 1 else None

    def _rest(self, index: int, part: Part) -> str:
        return only(self.texts[index], [own for own in self.pieces[index] if own.name in part])

    def _reduce(self, hits: Sequence[int]) -> None:
        """Reduces these hits side by side, one question each at a time."""
        runs = {index: _reduction(self.pieces[index], self.rarity) for index in hits}
        waiting = {index: next(run) for index, run in runs.items()}
        while waiting:
            told = self.asker.answers(
                [
                    (index, only(self.texts[index], [self.pieces[index][at] for at in kept]))
                    for index, kept in waiting.items()
                ]
            )
            if told is None:
                return
            # Later only hits that no known part explains are said again, chance hits above all.
            if self.is_believed is None:
                self.is_believed = self._is_believed(hits, sum(told) / len(told))
                if self.asker.times > 1:
                    return
            if not self.is_believed:
                return
            for index, is_hit in zip(list(waiting), told, strict=True):
                try:
                    waiting[index] = runs[index].send(is_hit)
                except StopIteration as end:
                    del waiting[index]
                    if end.value is not None:
                        self.found[index] = end.value

    def _is_believed(self, hits: Sequence[int], repeated: float) -> bool:
        """Whether replies say something about words; asks more often from now on if they must."""
        if repeated >= REPEATING:
            return True
        if repeated < OFTEN:
            return False
        names = {index: [own.name for own in self.pieces[index]] for index in hits}
        stray = self.asker.answers(
            # An empty probe may hit too.
            [
                (index, min(own, key=self.rarity.__getitem__, default=""))
                for index, own in names.items()
            ]
        )
        if stray is None or sum(stray) > STRAY * len(stray):
            return False
        self.asker.times = math.ceil(math.log(OVERLOOKED) / math.log(1.0 - repeated))
        return True


def parts_of(
    hits: Sequence[str], *, ask: Ask | None, budget: int, seed: int, common: Part = frozenset()
) -> Parts:
    """What each hit is made of: by asking the target, or by shared words where that says nothing.

    A hit for which the budget does not last has the part of those before it that it says, else the
    one that it shares with others. ``common``: names that do not count as shared.
    """
    shared = shared_parts(hits, common)
    if ask is None or not hits:
        return Parts(shared)
    search = _Search(hits, _Asker(ask, budget))
    order = generator(derive_key(seed, "counterfactual")).permutation(len(hits)).tolist()
    while order and search.asker.left:
        times = search.asker.times
        search.look_at(order[: AT_ONCE // times])
        if search.is_believed is False:
            return Parts(shared, search.asker.calls)
        if search.asker.times == times:
            del order[: AT_ONCE // times]
    asked = search.found
    if not asked:
        return Parts(shared, search.asker.calls)
    told = [
        asked.get(index) or search.inferred_part(index) or part for index, part in enumerate(shared)
    ]
    return Parts(smallest(told), search.asker.calls, len(asked))


def _reduction(pieces: Sequence[Piece], rarity: Mapping[str, int]) -> Reduction:
    """Yields indices of pieces, is sent whether they hit, and returns the names that must stay.

    None is returned for a probe that misses when it is said again.
    """
    every = range(len(pieces))
    if not (yield tuple(every)):
        return None
    kept = set(every)
    blocks = _halves(sorted(every, key=lambda at: (rarity[pieces[at].name], at)))
    while blocks:
        block = blocks.pop()
        rest = kept.difference(block)
        # Nobody can say nothing.
        if rest and (yield tuple(sorted(rest))):
            kept = rest
        elif len(block) > 1:
            blocks += _halves(block)
    return frozenset(pieces[at].name for at in kept)


def _halves(block: Sequence[int]) -> list[Sequence[int]]:
    """Both halves, the first one last; one of them alone where there is only one."""
    middle = (len(block) + 1) // 2
    return [half for half in (block[middle:], block[:middle]) if half]
