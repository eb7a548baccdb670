"""Turns grouped by prompt across its runs, and the mean of each run.

As NexRL groups what it samples: all sequences of a task are compared, and with run ids the
sequences of one run count together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean

from astra_core.algorithms.credit import CreditedTurn
from astra_core.rollout import Graph


@dataclass(frozen=True, slots=True)
class RunTurns:
    """Turns that can be learned from, and the run that each belongs to.

    Attributes:
        turns: Equal ``group`` where they are compared with each other.
        runs: One per turn; runs of equal numbers in different groups are different runs.
    """

    turns: Sequence[CreditedTurn]
    runs: Sequence[int]


def turns_by_prompt(
    graphs: Sequence[Graph], turns_of: Callable[[Sequence[Graph]], Sequence[CreditedTurn]]
) -> RunTurns:
    """The turns of these graphs in order, grouped by prompt.

    Args:
        graphs: Of any prompts, each once per run.
        turns_of: Gives the credited turns of some graphs.
    """
    groups: dict[str, int] = {}
    turns: list[CreditedTurn] = []
    runs: list[int] = []
    for graph in graphs:
        group = groups.setdefault(graph.prompt.prompt_id, len(groups))
        own = [replace(turn, group=group) for turn in turns_of([graph])]
        turns += own
        runs += [graph.run_id] * len(own)
    return RunTurns(turns, runs)


def run_means(compared: RunTurns) -> list[CreditedTurn]:
    """For every run one turn of it, worth the mean of the run."""
    pairs = zip(compared.turns, compared.runs, strict=True)
    by_run = sorted(pairs, key=_run_of)
    means = []
    for _, pair in groupby(by_run, key=_run_of):
        own = [turn for turn, _ in pair]
        means.append(replace(own[0], value=fmean(turn.value for turn in own)))
    return means


def _run_of(pair: tuple[CreditedTurn, int]) -> tuple[int, int]:
    turn, run = pair
    return turn.group, run
