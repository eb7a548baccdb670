"""``astra trial``: one batch through rollout, score, loss and gradient, and the cost of a run.

Nothing is changed: weights, files and registry stay as they are.
"""

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from astra_core.errors import DataError
from astra_core.files import record_digest
from tasks.expectations.judge_trial import try_judge
from tasks.figures.examples import examples_page
from tasks.machine.console import libraries_to, progress, say_found
from tasks.machine.environment import set_up_process
from tasks.machine.time_words import about
from tasks.params.checks import check_params
from tasks.params.schema import Params
from tasks.pipeline.precision import advise
from tasks.pipeline.stage import plain_sections, sections_for
from tasks.records.prompts import read_prompts
from tasks.records.reports import nan_as_null
from tasks.records.signal import signal_doubts
from tasks.stages.training import TrainingFiles, TrainingParams, evaluator_of, trainer_of
from tasks.trials.forecast import Amount, TrialMeasurements, forecast
from tasks.trials.gpu_memory import try_memory
from tasks.trials.measurement import examined_amount, rolled_amount
from tasks.trials.workload import replies_of_a_tree

if TYPE_CHECKING:
    from astra_core.rollout import Graph
    from astra_core.training.trainer import Trainer
    from astra_core.training.trial import Trial

SECTIONS = tuple(field.name for field in fields(TrainingParams) if field.name != "registration")
"""The sections of params.yaml that a trial reads, beside the outputs of earlier stages."""
NUM_EXAMINED = 16
"""Number of dev prompts in the evaluation that is measured."""
MOST_TOKENS = 6144
"""Tokens that the replies of the measured rollouts may have, if two prompts do not have more."""
NUM_SAMPLES = 5


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of a trial.

    ``price``: the price of a million of the target's tokens; None if unknown. ``doubts``: what is
    doubtful about the judge.
    """

    trial: "Trial"
    parts: dict[str, Amount]
    samples: tuple[str, ...]
    price: float | None
    memory: str
    doubts: tuple[str, ...]

    @property
    def total(self) -> Amount:
        """The cost of all parts together."""
        return sum(self.parts.values(), start=Amount())

    @property
    def cost(self) -> float | None:
        """The money for all parts, in the currency of the price; None without price or tokens."""
        tokens = self.total.tokens_in + self.total.tokens_out
        return None if self.price is None or math.isnan(tokens) else self.price * tokens / 1e6

    def record(self) -> dict[str, Any]:
        """The findings as JSON."""
        trial = self.trial
        return {
            "batch": {
                "num_prompts": len(trial.experience.graphs),
                "num_steps": trial.num_steps,
                "num_tokens": trial.num_tokens,
                "loss": trial.loss,
                "grad_norm": trial.grad_norm,
                "rollout_s": trial.experience.rollout_s,
                "score_s": trial.experience.score_s,
                "gradient_s": trial.gradient_s,
                "metrics": trial.experience.metrics,
            },
            "run": {
                "parts": {name: nan_as_null(asdict(part)) for name, part in self.parts.items()},
                **nan_as_null(asdict(self.total)),
                "cost": self.cost,
            },
            "peak_bytes": trial.peak_bytes,
            "memory": self.memory,
            "advice": [*self.doubts, *signal_doubts(trial.experience.metrics)],
            "samples": list(self.samples),
        }

    def lines(self) -> list[str]:
        """The findings for a person."""
        total = self.total
        parts = ", ".join(f"{name} {about(part.seconds)}" for name, part in self.parts.items())
        tokens = f"reads {total.tokens_in:,.0f} tokens, writes {total.tokens_out:,.0f}"
        cost = "unknown; 'astra trial --price-per-million-tokens PRICE' tells it"
        if math.isnan(total.tokens_in):
            tokens, cost = "does not count tokens", "unknown; it counts none"
        elif self.cost is not None:
            cost = f"{self.cost:,.2f} at {self.price:g} per million tokens"
        return [
            "content warning: turns of the attacker and the target",
            *self.samples,
            self._batch(),
            *(f"{'judge':<13}{doubt}" for doubt in self.doubts),
            *(f"{'signal':<13}{told}" for told in signal_doubts(self.trial.experience.metrics)),
            f"{'target':<13}a whole run asks it for {total.calls:,.0f} replies; it {tokens}",
            f"{'time':<13}at most about {about(total.seconds)}: {parts}",
            f"{'memory':<13}{self.memory}",
            f"{'cost':<13}{cost}",
            "nothing was changed",
        ]

    def _batch(self) -> str:
        trial = self.trial
        return (
            f"{'batch':<13}{trial.num_steps} steps of {len(trial.experience.graphs)} prompts; the "
            f"first batch has {trial.num_tokens:,} tokens, loss {trial.loss:.4g}, gradient norm "
            f"{trial.grad_norm:.4g}"
        )


def run_trial(params: Params, *, price: float | None, is_revealed: bool, as_json: bool) -> None:
    """Tries one batch and prints the findings.

    Raises ConfigurationError if params.yaml cannot be used; DataError if the stages before training
    have not run; TrainingError if the batch gives no finite loss, or nothing to learn.
    """
    files = ready_to_try(params)
    # Not to a log in the project: a trial leaves no file.
    with libraries_to(Path(os.devnull)), TemporaryDirectory() as scratch:
        found = _findings(params, files, Path(scratch), price=price, is_revealed=is_revealed)
    say_found(found.record(), found.lines(), as_json=as_json)


def ready_to_try(params: Params) -> TrainingFiles:
    """What the stages before training left, with this process set up like a stage's."""
    set_up_process(params)
    check_params(params)
    advise(params)
    files = TrainingFiles()
    check_inputs((files.valid, files.base))
    return files


def check_inputs(paths: Sequence[Path]) -> None:
    """Raises DataError unless the outputs of earlier stages exist."""
    makers = {"valid": "validation", "base": "models"}
    missing = [path for path in paths if not path.exists()]
    if missing:
        stages = " ".join(makers[path.name] for path in missing)
        msg = (
            f"astra trial must find {' and '.join(map(str, missing))}, got no such path; "
            f"'dvc repro {stages}' makes it"
        )
        raise DataError(msg)


def _findings(
    params: Params, files: TrainingFiles, scratch: Path, *, price: float | None, is_revealed: bool
) -> Findings:
    own = sections_for(TrainingParams, params)
    num_dev = len(read_prompts(files.valid / "dev.parquet"))
    num_examined = min(NUM_EXAMINED, params.evaluation.num_training_prompts, num_dev)
    evaluator = evaluator_of(own, files, limit=num_examined)
    episodes = own.training.num_episodes_per_experience
    replies = replies_of_a_tree(params) * own.rollouts.runs_per_prompt
    tokens = replies * own.system.response.max_new_tokens
    count = min(max(round(MOST_TOKENS / tokens), 2), episodes)
    account = f"trial {record_digest(plain_sections(own))[:16]}"
    with progress("trial", 0) as advance, ExitStack() as ended:
        advance(0, note="loading the models")
        trainer = trainer_of(own, files, folder=scratch, evaluator=evaluator)
        ended.callback(trainer.close)
        doubts = try_judge(trainer.sampler.system.scorer)
        advance(1, note=f"rolling out {count} prompts")
        rolled, first = rolled_amount(trainer, count, account=f"{account} rollouts")
        advance(1, note="learning from one batch")
        trial, memory, tried = _try_batch(trainer, first)
        later = rolled
        if (more := _times_the_replies(trainer, trial)) > 1.0:
            again = max(round(count / more), 1)
            advance(1, note=f"rolling out {again} prompts with {more:.1f} times the replies")
            later, _ = rolled_amount(trainer, again, account=f"{account} later rollouts")
        advance(1, note="evaluating")
        examined = examined_amount(
            trainer, evaluator, num_prompts=num_examined, account=f"{account} evaluation"
        )
        advance(1)
    graphs = list(trial.experience.graphs)
    # A trainer that does not learn from rollouts has its own number.
    num_steps = round(trial.num_steps * (episodes / count if graphs else 1))
    # Seconds grow with the rows of a batch.
    longer = min(own.training.batch_size, num_steps) / min(tried, trial.num_steps)
    measured = TrialMeasurements(
        rolled=rolled,
        later=later,
        examined=examined,
        num_steps=num_steps,
        gradient_s=trial.gradient_s * longer,
        rolls_out=bool(graphs),
        num_train=len(trainer.sampler.prompts),
        num_dev=num_dev,
        num_test=len(read_prompts(files.valid / "test.parquet")),
    )
    page = examples_page(graphs, count=NUM_SAMPLES, is_revealed=is_revealed).splitlines()
    # Without the page's head; where prompts have categories, a column more.
    samples = tuple(line for line in page if line.startswith("|"))
    return Findings(trial, forecast(params, measured), samples, price, memory, doubts)


def _times_the_replies(trainer: "Trainer", trial: "Trial") -> float:
    """How many times as many replies the sampler asks for once it has seen an experience."""
    sampler = trainer.sampler
    known = trial.experience.metrics.get("sampler/num_responses")
    if known is None:
        return 1.0
    # What was tried left no memory behind.
    sampler.remember(trial.experience.graphs)
    options: Any = sampler.options
    return known / float(options.num_responses)


def _try_batch(trainer: "Trainer", graphs: Sequence["Graph"]) -> tuple["Trial", str, int]:
    """The trial of a batch, its memory in words, and the ``training.batch_size`` that was tried."""
    import torch

    device, asked = trainer.sampler.system.attacker.device, trainer.config.batch_size
    if device.type != "cuda":
        trial = trainer.dry_run(graphs)
        return trial, f"{trial.peak_bytes / 2**20:,.0f} MiB at the peak of this trial", asked
    rolled = torch.cuda.max_memory_allocated(device)
    total = torch.cuda.get_device_properties(device).total_memory
    trial, found = try_memory(trainer, graphs, total=total, rollouts=rolled)
    return trial, found.line(asked), found.batch_size
