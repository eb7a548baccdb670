"""How well credit reaches the first of two turns: ``python -m benchmarks credit``.

No language model runs, so a row takes seconds. An attacker has 24 templates of three kinds; only a
template of the second kind after one of the first succeeds, so at first one rollout in nine does.
Its logits are a sum of a part that both turns share, as the weights of a language model are, and a
part of each context. Trees, the draw of three replies, a term of the reward that has nothing to do
with success, credit, pairs, advantages and losses are as in a default training. Written with the
world ``colour_then_kind`` of ``benchmarks.worlds`` in view, never with ``two_turns``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from astra_core.algorithms import functional as core
from astra_parts.algorithms import functional as fn
from astra_parts.arguments import LineParser, at_least_one
from tasks.machine.tables import markdown

HEADER = ("algorithm", "backup", "turn_weights", "first turn %", "second %", "success %", "least %")
_KINDS, _WIDTH, _REPLIES = 3, 4, 3
_KIND = torch.arange(24) // 8
_NUISANCE, _NOISE = 0.08, 0.05
_SURE, _RARE = 0.95, 0.05


@dataclass(frozen=True, slots=True)
class Method:
    """How the attacker learns.

    Attributes:
        algorithm: dpo, trajectory_balance or grpo.
        backup: As in the options of each.
        turn_weights: As in the options of each.
    """

    algorithm: Literal["dpo", "trajectory_balance", "grpo"]
    backup: Literal["none", "max", "mean"]
    turn_weights: Literal["equal", "visits"]


METHODS = (
    Method("dpo", "none", "equal"),
    Method("dpo", "mean", "equal"),
    Method("dpo", "mean", "visits"),
    Method("trajectory_balance", "mean", "equal"),
    Method("trajectory_balance", "mean", "visits"),
    Method("grpo", "mean", "equal"),
    Method("grpo", "mean", "visits"),
)


@dataclass(frozen=True, slots=True)
class Forest:
    """The turns of an experience.

    Attributes:
        contexts: 0 before a first turn, else 1 plus the kind of the probe before.
        probes: Templates.
        parents: Place of the turn before, -1 for a first one.
        seeds: The prompt of each.
        rewards: Of each by itself.
    """

    contexts: Tensor
    probes: Tensor
    parents: Tensor
    seeds: Tensor
    rewards: Tensor


class TwoTurns:
    """An attacker and its target, both tables."""

    def __init__(self, seed: int) -> None:
        self.rng = torch.Generator().manual_seed(seed)
        self.shared = torch.zeros(24, requires_grad=True)
        self.own = torch.zeros(1 + _KINDS, 24, requires_grad=True)
        self._nuisance = _NUISANCE * torch.randn(24, generator=self.rng)

    def logprobs(self, contexts: Tensor) -> Tensor:
        """Of every template in each context, nats."""
        return torch.log_softmax(self.shared + self.own[contexts], -1)

    def chances(self) -> tuple[float, float]:
        """Of the right kind in the first turn, and in the second after it."""
        with torch.no_grad():
            first, second = self.logprobs(torch.tensor([0, 1])).exp()
        return float(first[_KIND == 0].sum()), float(second[_KIND == 1].sum())

    def experience(self, num_prompts: int) -> Forest:
        """Trees of depth two, with rewards."""
        num_first = num_prompts * _WIDTH
        first = self._drawn(torch.zeros(num_prompts, dtype=torch.long))
        second = self._drawn(1 + _KIND[first])
        parents = torch.arange(num_first).repeat_interleave(_WIDTH)
        hits = (_KIND[first][parents] == 0) & (_KIND[second] == 1)
        probes = torch.cat([first, second])
        prompts = torch.arange(num_prompts)
        return Forest(
            contexts=torch.cat([torch.zeros(num_first).long(), 1 + _KIND[first][parents]]),
            probes=probes,
            parents=torch.cat([torch.full((num_first,), -1), parents]),
            seeds=torch.cat([prompts.repeat_interleave(_WIDTH ** (turn + 1)) for turn in (0, 1)]),
            rewards=self._rewards(probes, torch.cat([torch.zeros(num_first).bool(), hits])),
        )

    def _drawn(self, contexts: Tensor) -> Tensor:
        with torch.no_grad():
            chances = self.logprobs(contexts).exp()
        return torch.multinomial(chances, _WIDTH, replacement=True, generator=self.rng).flatten()

    def _rewards(self, probes: Tensor, hits: Tensor) -> Tensor:
        chances = torch.where(hits, _SURE, _RARE)[:, None].expand(-1, _REPLIES)
        replies = torch.bernoulli(chances, generator=self.rng).mean(-1)
        noise = _NOISE * torch.randn(len(probes), generator=self.rng)
        return (replies + self._nuisance[probes] + noise).double()


def learned(method: Method, *, seed: int, experiences: int = 6, lr: float = 0.02) -> TwoTurns:
    """The attacker after a training of the default's shape."""
    world = TwoTurns(seed)
    weights = [world.shared, world.own]
    optimizer = torch.optim.Adam(weights, lr=lr)
    for number in range(experiences):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1.0 + math.cos(math.pi * number / experiences)) / 2.0
        lesson = Lesson(world, method, world.experience(64 if number == 0 else 16))
        for _ in range(3):
            order = torch.randperm(lesson.size, generator=world.rng)
            for rows in torch.split(order, 16 if lesson.is_of_pairs else 32):
                optimizer.zero_grad()
                torch.autograd.backward(lesson.loss(rows))
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
                optimizer.step()
    return world


class Lesson:
    """What is learned from one experience."""

    def __init__(self, world: TwoTurns, method: Method, grown: Forest) -> None:
        self._world, self._method, self._grown = world, method, grown
        values, groups = grown.rewards, core.sibling_groups(grown.parents, grown.seeds)
        if method.backup != "none":
            how = method.backup
            values = core.backed_up_rewards(values, grown.parents, discount=0.9, how=how)
        self.is_of_pairs = method.algorithm != "grpo"
        self._counts = torch.ones(len(values))
        if method.turn_weights == "visits":
            self._counts = core.visit_weights(grown.parents, grown.seeds).float()
        self._values = values.float()
        margin = 0.1 if method.algorithm == "dpo" else 0.0
        self._pairs = core.preference_pairs(values, groups, min_margin=margin)
        self._advantages = fn.group_advantages(values, groups).float()
        with torch.no_grad():
            self._before = self._logprobs(torch.arange(len(values)))

    @property
    def size(self) -> int:
        """How many pairs or turns there are."""
        return len(self._pairs) if self.is_of_pairs else len(self._values)

    def loss(self, rows: Tensor) -> Tensor:
        """Mean over these pairs or turns."""
        return (self._of_pairs(rows) if self.is_of_pairs else self._of_turns(rows)).mean()

    def _logprobs(self, turns: Tensor) -> Tensor:
        grown = self._grown
        every = self._world.logprobs(grown.contexts[turns])
        return every.gather(1, grown.probes[turns][:, None])[:, 0]

    def _of_pairs(self, rows: Tensor) -> Tensor:
        # The reference is uniform, so log-probabilities differ as log-ratios do.
        high, low = self._pairs[rows].T
        chosen, rejected = self._logprobs(high), self._logprobs(low)
        if self._method.algorithm == "dpo":
            return -logsigmoid(0.1 * (chosen - rejected)) * self._counts[high]
        gaps = self._values[high] - self._values[low]
        return fn.balance_losses(chosen, rejected, gaps, temperature=0.1) * self._counts[high]

    def _of_turns(self, rows: Tensor) -> Tensor:
        ratios = (self._logprobs(rows) - self._before[rows]).exp()
        gains = self._advantages[rows] * self._counts[rows]
        return -torch.minimum(ratios * gains, ratios.clamp(0.8, 1.2) * gains)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; the exit status."""
    parser = LineParser(prog="python -m benchmarks credit", description=__doc__)
    parser.add_argument("--seeds", type=at_least_one, default=12, help="how many")
    parser.add_argument("--experiences", type=at_least_one, default=6)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(markdown(HEADER, [row(each, asked.seeds, asked.experiences) for each in METHODS]))
    return 0


def row(method: Method, num_seeds: int, experiences: int) -> list[str]:
    """Means over seeds, and the least successful one."""
    chances = [
        learned(method, seed=seed, experiences=experiences).chances() for seed in range(num_seeds)
    ]
    successes = [first * second for first, second in chances]
    figures = chain(map(fmean, zip(*chances, strict=True)), (fmean(successes), min(successes)))
    return [
        method.algorithm,
        method.backup,
        method.turn_weights,
        *(f"{100.0 * figure:.0f}" for figure in figures),
    ]
