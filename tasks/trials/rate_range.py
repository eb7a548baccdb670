"""``astra tune-lr``: how far one experience moves the attacker at each of several learning rates.

Every rate begins from the same untrained attacker and learns from the same rollouts, at a constant
rate and without a trust region. Its probes afterwards, on the same prompts with the same random
numbers, show what the movement achieved. Nothing is changed.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from astra_core.config import Choice, EarlyStopping, KLConfiguration, StalenessConfiguration
from astra_core.errors import ConfigurationError, TrainingError
from tasks.machine.console import libraries_to, say
from tasks.params.schema import Params
from tasks.pipeline.stage import sections_for
from tasks.stages.training import TrainingFiles, TrainingParams, trainer_of
from tasks.trials.trial import ready_to_try

if TYPE_CHECKING:
    from astra_core.rollout import Graph
    from astra_core.training.trainer import Trainer

TARGET_NATS = 4.0
"""Allowed movement if none is named: that of the default run's first experience."""
_HEADER = f"{'rate':>9} {'moved':>8} {'reward':>8} {'score':>7} {'NLL':>6}  (nats, after it)"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The effect of one experience at one rate.

    Attributes:
        rate: The learning rate; 0 for the untrained attacker.
        target_nll: NLL of new probes under the target, nats per token.
    """

    rate: float
    nats: float
    reward: float
    score: float
    target_nll: float

    def line(self) -> str:
        """A row of the table."""
        name = f"{self.rate:.1e}" if self.rate else "untrained"
        outcome = f"{self.reward:>8.3f} {self.score:>7.3f} {self.target_nll:>6.2f}"
        return f"{name:>9} {self.nats:>8.2f} {outcome}"


def rates_between(lowest: float, highest: float, count: int) -> list[float]:
    """Rates from the lowest to the highest, evenly spread by their logarithms, two digits each.

    Raises ConfigurationError if they do not form a range.

    >>> rates_between(1e-5, 1e-3, 3)
    [1e-05, 0.0001, 0.001]
    """
    if not (0.0 < lowest < highest < math.inf and count >= 2):
        msg = (
            "rates must go up from --lowest to --highest in at least 2 steps, got "
            f"{lowest:g}, {highest:g} and {count}; as in --lowest 1e-5 --highest 3e-3 --count 6"
        )
        raise ConfigurationError(msg)
    root = (highest / lowest) ** (1.0 / (count - 1))
    return [float(f"{lowest * root**at:.1e}") for at in range(count)]


def suggest_rate(outcomes: Sequence[Outcome], target: float) -> float | None:
    """The highest rate up to which no experience moved further than the target; None if none."""
    found = None
    for outcome in sorted(outcomes, key=lambda each: each.rate):
        if not outcome.nats <= target:
            break
        found = outcome.rate
    return found


def run_rate_range(
    params: Params, rates: Sequence[float], *, target: float | None = None, as_json: bool = False
) -> float | None:
    """Tries each rate, prints a table and the suggestion, and returns that.

    ``target``: allowed movement in nats; None for 4.

    Raises ConfigurationError if params.yaml cannot be used, DataError if the stages before training
    have not run, TrainingError if there is nothing to learn from.
    """
    files = ready_to_try(params)
    wanted = target or TARGET_NATS
    with libraries_to(Path(os.devnull)), TemporaryDirectory() as scratch:
        own = sections_for(TrainingParams, params)
        outcomes: list[Outcome] = []
        for outcome in _try_rates(own, files, Path(scratch), rates=rates):
            if not as_json:
                say(outcome.line() if outcomes else f"{_HEADER}\n{outcome.line()}")
            outcomes.append(outcome)
        found = suggest_rate(outcomes[1:], wanted)
        record = {"target_nats": wanted, "suggested": found, "tried": [*map(asdict, outcomes)]}
        say(json.dumps(record, indent=2) if as_json else _advice(found, rates, wanted))
    return found


def _try_rates(
    params: TrainingParams, files: TrainingFiles, scratch: Path, *, rates: Sequence[float]
) -> Iterator[Outcome]:
    """The outcome of the untrained attacker, then of each rate."""
    with closing(_trainer(params, files, scratch, rate=rates[0])) as untrained:
        graphs = untrained.harness.collect(0, None).graphs
        yield _outcome(untrained, 0.0)
    for rate in rates:
        trainer = _trainer(params, files, scratch, rate=rate, graphs=graphs)
        trainer.train()
        yield _outcome(trainer, rate)


def _advice(found: float | None, rates: Sequence[float], target: float) -> str:
    if found is None:
        lower = f"--lowest {rates[0] / 30:.0e}"
        return f"every rate moves the attacker more than {target:g} nats; try {lower}"
    more = "; a higher one may do too, see --highest" if found == max(rates) else ""
    return f"suggested: training.lr {found:g}, the highest that moves at most {target:g} nats{more}"


def _trainer(
    params: TrainingParams,
    files: TrainingFiles,
    scratch: Path,
    *,
    rate: float,
    graphs: Sequence["Graph"] | None = None,
) -> "Trainer":
    """A trainer that learns one experience at this rate, from the untrained attacker."""
    changes: Mapping[str, object] = {
        "lr": rate,
        "training_steps": 1,
        "warmup_steps": 0,
        "schedule": Choice(name="transformers", options={"kind": "constant"}),
        "evaluate": "none",
        "keep": "last",
        "staleness": StalenessConfiguration(),
        "kl": KLConfiguration(max_per_experience_nats=None),
        "early_stopping": EarlyStopping(max_kl_nats=None),
        "dump_steps": (),
    }
    own = replace(params, training=params.training.model_copy(update=dict(changes)))
    folder = scratch / f"{rate:g}-{graphs is None}"
    return trainer_of(own, files, folder=folder, first_graphs=graphs)


def _outcome(trainer: "Trainer", rate: float) -> Outcome:
    """The attacker's figures now, on the same prompts and random numbers for each rate."""
    if rate and not trainer.progress.step:
        msg = "an experience must offer something to learn, got none; see 'astra trial'"
        raise TrainingError(msg)
    figures = trainer.harness.collect(1, None).metrics
    return Outcome(
        rate,
        trainer.progress.moves[-1].nats if rate else 0.0,
        figures["rollout/reward"],
        figures["rollout/score"],
        figures["rollout/target_nll"],
    )
