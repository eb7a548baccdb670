"""How often the gate is wrong, and how often it detects a real gain: the tables in the docs.

The last table is of the first duel, against the untrained attacker on the test prompts.

``python -m benchmarks gate`` simulates attackers as probabilities of success and of strategies,
draws the outcomes that an examination would give, and lets ``tasks.promotion.gate.decide`` decide,
with the levels of ``tasks.promotion.spending``. No model runs, so a month of nights takes seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from astra_core.seeding import derive_key, generator
from astra_parts.arguments import LineParser, at_least_one
from tasks.machine.tables import markdown
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.gate import Comparison, Stake, decide
from tasks.promotion.paired import t_test
from tasks.promotion.richness import richness_of
from tasks.promotion.spending import level_of, place_of

NUM_ROLLOUTS = 2
NUM_STRATEGIES = 24
RECORD_PROMPTS = 200
# Spread of the success probability over prompts, as in the built-in world.
_SPREAD = 0.2


@dataclass(frozen=True, slots=True)
class Attacker:
    """An attacker as the gate sees it.

    Attributes:
        success: Mean probability of success over prompts.
        evenness: From 1, all strategies equally often, to 0, nearly all hits in one.
    """

    success: float
    evenness: float = 0.5

    def shares(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Probability of each strategy among its hits."""
        weights = np.exp(-np.arange(NUM_STRATEGIES) * (1.0 - self.evenness))
        return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True)
class Month:
    """The result of a month of nightly duels.

    Attributes:
        num_promoted: Nights with a promotion.
        excess: The champion's registered success minus its true one, at the end.
    """

    num_promoted: int
    excess: float


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after both tables are printed."""
    parser = LineParser(prog="python -m benchmarks gate", description=__doc__)
    parser.add_argument("--duels", type=at_least_one, default=3000)
    parser.add_argument("--months", type=at_least_one, default=200)
    asked = parser.parse_args(arguments)
    rules = PromotionConfiguration()
    print(markdown(_DUELS, duel_rows(rules, asked.duels)))
    print()
    print(markdown(_MONTHS, month_rows(rules, asked.months)))
    print()
    print(markdown(_FIRST, first_rows(rules, asked.duels)))
    return 0


_DUELS = ("candidate against a champion of 50 %", "promoted in one duel", "in a month of nights")
_MONTHS = ("every night's candidate", "months with a promotion", "record minus truth, points")


_GAINS = (0.0, 0.05, 0.1, 0.2)
_FIRST = ("untrained attacker, test prompts", *(f"{100 * gain:+.0f} points" for gain in _GAINS))


def first_rows(rules: PromotionConfiguration, num_duels: int) -> list[list[str]]:
    """Share of first duels that promote, by the untrained attacker's success and the gain."""
    found = []
    for success, num_prompts in ((0.1, 200), (0.5, 200), (0.5, 100), (0.5, 400)):
        own = rules.model_copy(update={"num_prompts": num_prompts})
        shares = [
            promoted_share(
                Attacker(success + gain),
                Attacker(success),
                own,
                num_duels=num_duels,
                against_champion=False,
            )
            for gain in _GAINS
        ]
        found.append([f"{success:.0%}, {num_prompts}", *(f"{share:.1%}" for share in shares)])
    return found


def duel_rows(rules: PromotionConfiguration, num_duels: int) -> list[list[str]]:
    """Share of duels that promote, by the candidate's true quality."""
    champion = Attacker(0.5)
    candidates = {
        "equal": champion,
        "+5 points": Attacker(0.55),
        "+10 points": Attacker(0.6),
        "+15 points": Attacker(0.65),
        "equal, strategies evenly used": Attacker(0.5, evenness=1.0),
        "-10 points, strategies evenly used": Attacker(0.4, evenness=1.0),
    }
    rows = []
    for number, (name, candidate) in enumerate(candidates.items()):
        share = promoted_share(candidate, champion, rules, num_duels=num_duels, seed=number)
        month = 1.0 - (1.0 - share) ** rules.horizon
        rows.append([name, f"{share:.2%}", f"{month:.1%}"])
    return rows


def month_rows(rules: PromotionConfiguration, num_months: int) -> list[list[str]]:
    """The results of a horizon of nights, by kind of candidates."""
    rows = []
    for name, gain in (("equal to the champion", 0.0), ("10 points below or above it", 0.1)):
        months = [month(rules, seed=seed, spread=gain) for seed in range(num_months)]
        share = np.mean([found.num_promoted > 0 for found in months])
        excess = 100.0 * np.array([found.excess for found in months])
        error = 1.96 * excess.std() / np.sqrt(len(excess))
        rows.append([name, f"{share:.1%}", f"{excess.mean():+.2f} ± {error:.2f}"])
    return rows


def promoted_share(
    candidate: Attacker,
    champion: Attacker,
    rules: PromotionConfiguration,
    *,
    num_duels: int,
    seed: int = 0,
    against_champion: bool = True,
) -> float:
    """Share of independent duels, each the first of a horizon, that promote the candidate."""
    rng = generator(derive_key(seed, "duels"))
    options: dict[str, Any] = {"number": 1, "rng": rng, "against_champion": against_champion}
    return float(np.mean([duel(candidate, champion, rules, **options) for _ in range(num_duels)]))


def month(rules: PromotionConfiguration, *, seed: int, spread: float = 0.0) -> Month:
    """A horizon of nights, each with a new candidate against the champion of the night before.

    Args:
        rules: The gate's rules.
        seed: Same seed, same month.
        spread: Half of the candidates are this much better than the champion, half worse.
    """
    rng = generator(derive_key(seed, "month"))
    champion, num_promoted = Attacker(0.5), 0
    record = _record(champion, rng)
    for number in range(1, rules.horizon + 1):
        success = float(np.clip(champion.success + spread * rng.choice((-1.0, 1.0)), 0.05, 0.95))
        candidate = Attacker(success, champion.evenness)
        # The registered figure comes from other prompts than the duel's.
        registered = _record(candidate, rng)
        if duel(candidate, champion, rules, number=number, rng=rng):
            champion, record, num_promoted = candidate, registered, num_promoted + 1
    return Month(num_promoted, record - _truth(champion))


def duel(
    candidate: Attacker,
    champion: Attacker,
    rules: PromotionConfiguration,
    *,
    number: int,
    rng: np.random.Generator,
    against_champion: bool = True,
) -> bool:
    """Whether the gate promotes, on newly drawn outcomes."""
    ease = rng.uniform(-_SPREAD, _SPREAD, size=rules.num_prompts)
    hits = [
        rng.binomial(NUM_ROLLOUTS, np.clip(own.success + ease, 0.0, 1.0))
        for own in (candidate, champion)
    ]
    strategies = [
        _labels(own, count, rng) for own, count in zip((candidate, champion), hits, strict=True)
    ]
    rates = [count / NUM_ROLLOUTS for count in hits]
    gains = rates[0] - rates[1]
    found = Comparison(
        gain=float(gains.mean()),
        low=float("nan"),
        high=float("nan"),
        candidate=float(rates[0].mean()),
        champion=float(rates[1].mean()),
        num_prompts=rules.num_prompts,
        confidence=0.95,
        test=t_test(gains),
        richness=richness_of(*strategies) if against_champion else None,
    )
    stake = Stake(
        level_of(number, rules),
        place=place_of(number, rules),
        horizon=rules.horizon,
        against_champion=against_champion,
    )
    return decide(found, rules=rules, stake=stake).passed


def _labels(
    attacker: Attacker, hits: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator
) -> list[list[int]]:
    drawn = iter(rng.choice(NUM_STRATEGIES, size=int(hits.sum()), p=attacker.shares()).tolist())
    return [[next(drawn) for _ in range(count)] for count in hits]


def _record(attacker: Attacker, rng: np.random.Generator) -> float:
    """The success that an evaluation would register."""
    ease = rng.uniform(-_SPREAD, _SPREAD, size=RECORD_PROMPTS)
    drawn = rng.binomial(NUM_ROLLOUTS, np.clip(attacker.success + ease, 0.0, 1.0))
    return float(drawn.mean() / NUM_ROLLOUTS)


def _truth(attacker: Attacker) -> float:
    """The true success over all prompts, where a strong attacker's chance is capped at 1."""
    ease = np.linspace(-_SPREAD, _SPREAD, 1001)
    return float(np.clip(attacker.success + ease, 0.0, 1.0).mean())
