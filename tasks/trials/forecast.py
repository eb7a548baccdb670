"""How long a whole run will take and what it costs, estimated from a few of its parts.

It is an upper bound by params.yaml: a run that stops early takes less. The cost of each part grows
with the number of prompts, so what a trial measures on a few is multiplied.
"""

import math
from dataclasses import astuple, dataclass
from operator import add

from astra_core.training.selection.evaluation_scheme import EvaluationScheme
from tasks.figures.plain_questions import TRIED_WITH
from tasks.params.schema import Params
from tasks.sources.requests import read_requests, requests_file


@dataclass(frozen=True, slots=True)
class Amount:
    """What conversations cost.

    ``tokens_in``: tokens that the target reads for them, its whole context for each reply; NaN, as
    ``tokens_out``, where it does not count.
    """

    calls: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(*map(add, astuple(self), astuple(other)))

    def __mul__(self, factor: float) -> "Amount":
        # Nothing of what is not known is nothing.
        return Amount(*(factor and own * factor for own in astuple(self)))


@dataclass(frozen=True, slots=True)
class TrialMeasurements:
    """What a trial measured.

    ``rolled``: one run of a prompt; ``later`` is one after the first experience. ``rolls_out``:
    false for a trainer that does not learn from rollouts.
    """

    rolled: Amount
    later: Amount
    examined: Amount
    num_steps: int
    gradient_s: float
    rolls_out: bool
    num_train: int
    num_dev: int
    num_test: int

    def cost_of(self, calls: int) -> Amount:
        """The cost of so many single replies in an evaluation."""
        return self.examined * (calls / max(self.examined.calls, 1.0))


def forecast(params: Params, measured: TrialMeasurements) -> dict[str, Amount]:
    """The cost of each part of a whole run, in the order of the run."""
    training, evaluation = params.training, params.evaluation
    runs = params.rollouts.runs_per_prompt
    first = runs * min(params.rollouts.num_prompts, measured.num_train)
    later = runs * (training.training_steps - 1) * training.num_episodes_per_experience
    look = min(evaluation.num_training_prompts, measured.num_dev)
    examined = min(evaluation.num_prompts, measured.num_test)
    final, replayed = 2 * examined, examined * (evaluation.bandit_calls > 0)
    # The chosen checkpoint is also examined on the prompts that chose it.
    final += look * EvaluationScheme(training).keeps_best
    asked = evaluation.num_rollouts * evaluation.num_responses
    plain = evaluation.ask_prompts * (look * min(TRIED_WITH, look) + 2 * examined * asked)
    plain += 2 * examined * asked * len(evaluation.transfer)
    if (requests := requests_file(evaluation)) is not None:
        plain += len(read_requests(requests))
    return {
        "rollouts": measured.rolled * first,
        "rollouts in training": measured.later * (later if measured.rolls_out else 0),
        "updates": Amount(seconds=num_batches(params, measured) * measured.gradient_s),
        "evaluations in training": measured.examined * num_evaluations(params) * look,
        "final evaluation": measured.examined * final + measured.cost_of(plain),
        "bandit": measured.cost_of(evaluation.bandit_calls) + measured.examined * replayed,
        # For both attackers; far fewer if replies to the same probe vary.
        "what makes hits hit": measured.cost_of(2 * evaluation.strategy_calls),
    }


def num_evaluations(params: Params) -> int:
    """Number of evaluations in a training that does not stop early, with that of a kept best."""
    scheme = EvaluationScheme(params.training)
    due = sum(scheme.is_due(step) for step in range(1, params.training.training_steps + 1))
    return scheme.has_first + due + scheme.keeps_best


def num_batches(params: Params, measured: TrialMeasurements) -> int:
    """Forward and backward passes of a training; its first step learns from the rollouts stage."""
    training = params.training
    first = measured.num_steps
    if measured.rolls_out:
        prompts = min(params.rollouts.num_prompts, measured.num_train)
        first = math.ceil(first * prompts / training.num_episodes_per_experience)
    later = math.ceil(measured.num_steps / training.batch_size) * (training.training_steps - 1)
    return training.epochs_per_experience * (math.ceil(first / training.batch_size) + later)
