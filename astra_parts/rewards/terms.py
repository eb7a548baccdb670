"""A reward made of named terms, each weighted, logged and, on request, normalised."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Self

import torch
from pydantic import Field
from torch import Tensor

from astra_core.config import Choice, NonNegative, Positive, Section
from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import describe, is_number, plugin_call, refuse
from astra_core.registry import build, find
from astra_core.reward import Reward, Signal
from astra_core.rollout import Graph, Node, Prompt
from astra_core.system import System
from astra_parts.rewards.term import Term, Turn, turns_of


class ConstraintOptions(Section):
    """Which term is held, at what level, and how fast the multiplier moves."""

    term: str
    at_least: float
    step_size: Positive = 0.5
    initial: NonNegative = 1.0
    largest: Positive = 20.0


class Multiplier:
    """The weight of the term that is held, moved by dual ascent.

    The reward is ``(objective + m * term) / (1 + m)``: its size stays when ``m`` grows.

    Sources:
        Diversity as the objective and success as the constraint: Zhao et al., DiveR-CT,
        arXiv:2405.19026. Dual ascent and the division: PPO-Lagrangian of Ray, Achiam and Amodei,
        "Benchmarking safe exploration in deep reinforcement learning" (2019).
    """

    def __init__(self, options: ConstraintOptions) -> None:
        self._options = options
        start = min(options.initial, options.largest)
        self.value = torch.tensor([start], dtype=torch.float64)

    @property
    def weight(self) -> float:
        """The weight of the term that is held."""
        return float(self.value)

    def shortfall(self, mean: float) -> float:
        """How far a mean of the term is below its level; negative above it."""
        return self._options.at_least - mean

    def move(self, mean: float) -> None:
        """One step of dual ascent.

        ``mean``: of the term, unweighted and not normalised, over the turns of an experience.
        """
        moved = self.weight + self._options.step_size * self.shortfall(mean)
        self.value.fill_(max(0.0, min(self._options.largest, moved)))


# Values are clipped at this many standard deviations, as observations and rewards are in the
# usual implementations of PPO.
_MAX_DEVIATIONS = 10.0
_MIN_DEVIATION = 1e-6


class RunningScale:
    """Mean and variance of all values so far, merged batch by batch.

    Sources:
        Welford, Technometrics 4 (1962); the merge of two sets is Chan, Golub and LeVeque (1979).
        Scaling each part of a reward before they are summed is the idea of GDPO (arXiv:2601.05242).
    """

    def __init__(self) -> None:
        self.moments = torch.zeros(3, dtype=torch.float64)

    def standardise(self, value: float) -> float:
        """Standard deviations above the mean; the value itself while fewer than two are known."""
        count, mean, squares = self.moments.tolist()
        if count < 2.0:
            return value
        deviations: float = (value - mean) / max(math.sqrt(squares / count), _MIN_DEVIATION)
        return max(-_MAX_DEVIATIONS, min(_MAX_DEVIATIONS, deviations))

    def add(self, values: Sequence[float]) -> None:
        """Adds the values of an experience to the moments."""
        if not values:
            return
        count, mean, squares = self.moments.tolist()
        own = math.fsum(values) / len(values)
        own_squares = math.fsum((value - own) ** 2 for value in values)
        total, apart = count + len(values), own - mean
        merged = (
            total,
            mean + apart * len(values) / total,
            squares + own_squares + apart**2 * count * len(values) / total,
        )
        self.moments.copy_(torch.tensor(merged, dtype=torch.float64))


Label = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")]


class TermChoice(Section):
    """A term of the reward and how it counts."""

    name: str = Field("", description="Of the term, or an import path or file; empty is the label.")
    weight: float | None = Field(None, description="Null is the term's own.")
    normalise: bool = Field(
        False, description="Count standard deviations above the mean so far instead."
    )
    options: dict[str, Any] = Field(default_factory=dict, description="Read by the term itself.")

    def choice(self, label: str) -> Choice:
        """The term by its name."""
        return Choice(name=self.name or label, options=self.options)


@dataclass(slots=True)
class _Part:
    """A term that was built."""

    label: str
    term: Term
    weight: float
    scale: RunningScale
    is_normalised: bool


class TermsReward(Reward):
    """The weighted sum of named terms; by default those of the reward ``adversarial``."""

    class Options(Section):
        """Which terms, and whether one of them is held at a level."""

        terms: dict[Label, TermChoice] = Field(
            dict.fromkeys(("reply", "probe_score", "likelihood", "novelty"), TermChoice()),
            min_length=1,
            description="By their labels in the log.",
        )
        constraint: ConstraintOptions | None = Field(
            None, description="Holds one term at a level while the others are maximised."
        )

        @classmethod
        def read(cls, record: Any, *, where: str) -> Self:
            """The options, those of the terms included.

            Raises ConfigurationError if a key or a value is wrong, also of a term.
            """
            found = super().read(record, where=where)
            for label, own in found.terms.items():
                find("term", own.choice(label))
            if found.constraint is not None and found.constraint.term not in found.terms:
                known = sorted(found.terms)
                msg = (
                    f"{where}.constraint.term must be one of the terms, "
                    f"got '{found.constraint.term}'; there are {known}"
                )
                raise ConfigurationError(msg)
            return found

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._parts = [_part(label, own) for label, own in options.terms.items()]
        held = options.constraint
        self._multiplier = None if held is None else Multiplier(held)
        self._held = "" if held is None else held.term

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Signal]:
        """What its terms need; a term of weight 0 needs nothing."""
        needs: frozenset[Signal] = frozenset()
        for label, own in getattr(options, "terms", {}).items():
            if own.weight != 0.0:
                found = find("term", own.choice(label))
                with plugin_call("term", found.plugin, "needs_with"):
                    needs |= found.plugin.needs_with(found.options)
        return needs

    def prepare(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Prepares every term."""
        for part in self._parts:
            with plugin_call("term", part.term, "prepare"):
                part.term.prepare(system, prompts)

    def assign(self, graphs: Sequence[Graph]) -> list[Graph]:
        """Rewards every node that did not fail; a failed one keeps 0 and is never trained on."""
        turns = turns_of(graphs)
        values = self._values(turns)
        counted = self._contributions(values)
        rewards = [math.fsum(own) for own in zip(*counted.values(), strict=True)]
        novelties = self._novelties(values, turns)
        # By identity: paths repeat from graph to graph.
        found = dict(zip(map(id, (turn.node for turn in turns)), rewards, strict=True))
        known = dict(zip(found, novelties, strict=True))

        def reward_node(node: Node) -> Node:
            novelty = known.get(id(node), node.novelty)
            return replace(
                node, probe=replace(node.probe, novelty=novelty), reward=found.get(id(node), 0.0)
            )

        return [graph.map_turns(reward_node) for graph in graphs]

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """The mean of each term, weighted and as a quantity, after every memory is updated.

        ``<label>`` is what the term added to the reward, ``<label>_value`` its quantity. With a
        constraint ``multiplier`` is the one that was used, and ``shortfall`` the gap to the level.
        """
        turns = turns_of(graphs)
        values = self._values(turns)
        figures = {label: _mean(own) for label, own in self._contributions(values).items() if own}
        figures |= {f"{label}_value": _mean(own) for label, own in values.items() if own}
        if self._multiplier is not None and turns:
            mean = _mean(values[self._held])
            figures["multiplier"] = self._multiplier.weight
            figures["shortfall"] = self._multiplier.shortfall(mean)
            self._multiplier.move(mean)
        for part in self._parts:
            part.scale.add(values[part.label])
            with plugin_call("term", part.term, "remember"):
                part.term.remember(turns)
        return figures

    def state(self) -> Mapping[str, Tensor]:
        """The memory of every term, its mean and variance, and the multiplier."""
        found = {
            f"{part.label}.memory.{name}": value
            for part in self._parts
            for name, value in part.term.state().items()
        }
        found |= {f"{part.label}.moments": part.scale.moments for part in self._parts}
        return (
            found if self._multiplier is None else {**found, "multiplier": self._multiplier.value}
        )

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restores all of it."""
        for part in self._parts:
            prefix = f"{part.label}.memory."
            own = {n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)}
            part.term.load_state(own)
            part.scale.moments.copy_(state[f"{part.label}.moments"])
        if self._multiplier is not None:
            self._multiplier.value.copy_(state["multiplier"])

    def _values(self, turns: Sequence[Turn]) -> dict[str, list[float]]:
        """The quantity of each term, by label, one number per turn."""
        return {part.label: _values_of(part.term, turns) for part in self._parts}

    def _contributions(self, values: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
        """The contribution of each term to the reward of each turn, by label."""
        held = 0.0 if self._multiplier is None else self._multiplier.weight
        return {
            part.label: [
                (held if part.label == self._held else part.weight)
                * (part.scale.standardise(value) if part.is_normalised else value)
                / (1.0 + held)
                for value in values[part.label]
            ]
            for part in self._parts
        }

    def _novelties(
        self, values: Mapping[str, Sequence[float]], turns: Sequence[Turn]
    ) -> Iterable[float]:
        """The mean of the terms that are a novelty; without one it stays unchanged."""
        found = [values[part.label] for part in self._parts if part.term.is_novelty]
        return map(_mean, zip(*found, strict=True)) if found else [t.node.novelty for t in turns]


def _part(label: str, own: TermChoice) -> _Part:
    term: Term = build("term", own.choice(label))
    weight = type(term).weight if own.weight is None else own.weight
    return _Part(label, term, weight, RunningScale(), own.normalise)


def _values_of(term: Term, turns: Sequence[Turn]) -> list[float]:
    """A term's values of the turns: a finite number for each."""
    with plugin_call("term", term, "values"):
        given: Any = term.values(turns)
    if not isinstance(given, Sequence) or len(given) != len(turns):
        got = f"{len(given)} for {len(turns)}" if isinstance(given, Sequence) else describe(given)
        refuse("term", term, "one number per turn from values", got=got)
    for value in given:
        if not (is_number(value) and math.isfinite(value)):
            refuse("term", term, "finite numbers from values", got=describe(value))
    return [float(value) for value in given]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
