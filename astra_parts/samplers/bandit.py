"""The cheapest way to succeed without training: the best of many untrained probes.

Successive halving: what the untrained attacker said in its first rollouts are the arms, with the
scores that they had. The better half is said again, on other training prompts, then the better half
of these, with as many replies in each round, until ``WINNERS`` are left. Those that succeed nearly
as often as the best of them win.

Source:
    Jamieson and Talwalkar, Non-stochastic best arm identification and hyperparameter optimization,
    arXiv:1502.07943 (2016): successive halving.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from astra_core.conversation import Conversation
from astra_core.rollout import Graph, Node, Prompt
from astra_core.samplers.level import Growth
from astra_core.seeding import derive_key, generator
from astra_core.system import System
from astra_parts.samplers.talks import Talk, hold_talks, trees


@dataclass(frozen=True, slots=True)
class ConversationLines:
    """What is said in one conversation.

    ``number``: its place among those of the same prompt, which decides its random numbers.
    """

    prompt: Prompt
    number: int
    probes: tuple[str, ...]


def conversations(growth: Growth, lines: Sequence[ConversationLines]) -> list[Node]:
    """The first turn of each conversation, with the later ones below it; a failure ends it."""
    talks = [Talk(Conversation(own.prompt), own.number) for own in lines]
    said = {id(talk): own.probes for talk, own in zip(talks, lines, strict=True)}
    depth = len(lines[0].probes) if lines else 0

    def speak(alive: Sequence[Talk]) -> list[str]:
        return [said[id(talk)][len(talk.turns)] for talk in alive]

    return hold_talks(growth, talks, speak, depth=depth)


WINNERS = 32
"""The most probes that are left."""
NEARLY = 0.9
"""Share of the best one's successes that a winner has at least."""

Pull = Callable[[int, Sequence[str], int], Sequence[Sequence[float]]]
"""The scores that each probe gets when it is said so many times in the round of a number."""


@dataclass(frozen=True, slots=True)
class BanditResult:
    """What a bandit found."""

    num_probes: int
    calls: int
    winners: tuple[str, ...]


def first_scores(graphs: Iterable[Graph]) -> dict[str, list[float]]:
    """The scores that each probe of these rollouts got."""
    found: dict[str, list[float]] = {}
    for graph in graphs:
        for node in graph.nodes():
            found.setdefault(node.probe_text, []).extend(node.judged_scores)
    return found


def halve(
    scores: Mapping[str, Sequence[float]], pull: Pull, *, threshold: float, budget: int
) -> BanditResult:
    """The best probes by successive halving.

    ``threshold``: a score at or above it is a success; the mean score tells equals apart.
    """
    known = {text: list(own) for text, own in scores.items()}

    def merit(text: str) -> tuple[float, float]:
        own, count = known[text], max(len(known[text]), 1)
        return sum(score >= threshold for score in own) / count, sum(own) / count

    kept = sorted(known, key=merit, reverse=True)
    rounds = max(math.ceil(math.log2(max(len(kept), 1) / WINNERS)) - 1, 1)
    calls = sum(map(len, known.values()))
    for number in range(rounds):
        if len(kept) <= WINNERS or budget < WINNERS * rounds:
            break
        kept = kept[: max(min(len(kept) // 2, budget // rounds), WINNERS)]
        times = budget // rounds // len(kept)
        for text, new in zip(kept, pull(number, kept, times), strict=True):
            known[text] += new
        calls += times * len(kept)
        kept.sort(key=merit, reverse=True)
    least = NEARLY * merit(kept[0])[0] if kept else 0.0
    winners = [text for text in kept[:WINNERS] if merit(text)[0] >= least]
    return BanditResult(len(known), calls, tuple(winners))


def pulling(system: System, prompts: Sequence[Prompt], *, seed: int) -> Pull:
    """Says probes as the first turn on prompts that are drawn for each time."""

    def pull(number: int, texts: Sequence[str], times: int) -> list[tuple[float, ...]]:
        drawn = generator(derive_key(seed, "bandit", number)).integers(
            len(prompts), size=len(texts) * times
        )
        lines = [
            ConversationLines(prompts[at], place, (texts[place // times],))
            for place, at in enumerate(drawn.tolist())
        ]
        turns = conversations(Growth(system, seed, "bandit", number, 1), lines)
        return [
            tuple(score for turn in own for score in turn.judged_scores)
            for own in (turns[at : at + times] for at in range(0, len(turns), times))
        ]

    return pull


def replay(
    system: System,
    prompts: Sequence[Prompt],
    winners: Sequence[str],
    *,
    shape: tuple[int, int, int],
    seed: int,
) -> list[Graph]:
    """Rollouts in which the winners are said, for each rollout others, drawn by its key."""
    num_rollouts, depth, num_responses = shape

    def draw(prompt: Prompt, number: int) -> tuple[str, ...]:
        key = derive_key(seed, "bandit winners", prompt.prompt_id, number)
        chosen = generator(key).choice(len(winners), depth, replace=len(winners) < depth)
        return tuple(winners[at] for at in chosen)

    lines = [
        ConversationLines(prompt, number, draw(prompt, number))
        for prompt in prompts
        for number in range(num_rollouts)
    ]
    turns = conversations(Growth(system, seed, "bandit winners", 0, num_responses), lines)
    return trees(prompts, turns)
