"""How much a whole run will take, from what a few of its parts took.

An upper bound as far as params.yaml says: a run that stops early takes less. Each part grows with
its prompts alone, so what a trial measures of few is multiplied.
"""

import math
from dataclasses import dataclass

from astra_core.training.selection.evaluation_scheme import EvaluationScheme
from tasks.params.schema import Params


@dataclass(frozen=True, slots=True)
class Amount:
    """What conversations take.

    Attributes:
        calls: Replies that the target is asked for.
        tokens_in: That the target reads for them, its whole context for each reply.
        tokens_out: That it writes.
        seconds: Of wall-clock time.
    """

    calls: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.seconds + other.seconds,
        )

    def __mul__(self, factor: float) -> "Amount":
        return Amount(
            self.calls * factor,
            self.tokens_in * factor,
            self.tokens_out * factor,
            self.seconds * factor,
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """What a trial measured.

    Attributes:
        rolled: Of one run of a training prompt.
        examined: Of one prompt of an evaluation.
        num_steps: Steps to learn from in one training step.
        gradient_s: Seconds of one batch, forward and backward.
        rolls_out: False for a trainer that learns from other things than rollouts.
        num_train: Training prompts that there are.
        num_dev: Dev prompts that there are.
        num_test: Test prompts that there are.
    """

    rolled: Amount
    examined: Amount
    num_steps: int
    gradient_s: float
    rolls_out: bool
    num_train: int
    num_dev: int
    num_test: int


def forecast(params: Params, measured: Measured) -> dict[str, Amount]:
    """What each part of a whole run takes, in the order of the run."""
    training, evaluation = params.training, params.evaluation
    runs = params.rollouts.runs_per_prompt
    first = runs * min(params.rollouts.num_prompts, measured.num_train)
    later = runs * (training.training_steps - 1) * training.num_episodes_per_experience
    look = min(evaluation.num_training_prompts, measured.num_dev)
    final = 2 * min(evaluation.num_prompts, measured.num_test)
    # The one chosen is examined where it was chosen too.
    final += look * EvaluationScheme(training).keeps_best
    return {
        "rollouts": measured.rolled * first,
        "rollouts in training": measured.rolled * (later if measured.rolls_out else 0),
        "updates": Amount(seconds=num_batches(params, measured) * measured.gradient_s),
        "evaluations in training": measured.examined * num_evaluations(params) * look,
        "final evaluation": measured.examined * final,
    }


def num_evaluations(params: Params) -> int:
    """Evaluations of a training that is not stopped early, the check of a kept best included."""
    scheme = EvaluationScheme(params.training)
    due = sum(scheme.is_due(step) for step in range(1, params.training.training_steps + 1))
    return scheme.has_first + due + scheme.keeps_best


def num_batches(params: Params, measured: Measured) -> int:
    """Forward and backward passes of a whole training; the first learns from the rollouts stage."""
    training = params.training
    first = measured.num_steps
    if measured.rolls_out:
        prompts = min(params.rollouts.num_prompts, measured.num_train)
        first = math.ceil(first * prompts / training.num_episodes_per_experience)
    later = math.ceil(measured.num_steps / training.batch_size) * (training.training_steps - 1)
    return training.epochs_per_experience * (math.ceil(first / training.batch_size) + later)
