"""How many replies a run asks the target for, by stage, as far as that is known in advance.

It is also the unit in which a stage's time is remembered: a run with twice as many replies is
expected to take twice as long.
"""

from pathlib import Path
from typing import Any

from astra_core.errors import DataError
from astra_core.files import read_json
from astra_core.registry import find
from tasks.params.columns import most_replies
from tasks.params.schema import Params
from tasks.params.targets import targets_of
from tasks.records.reports import read_record
from tasks.records.rollout_report import RolloutsRecord
from tasks.trials.forecast import Amount, TrialMeasurements, forecast

ROLLOUTS = Path("reports/rollouts.json")
VALIDATION = Path("reports/validation.json")
_ENOUGH = 10**9
_PARTS = {
    "rollouts": ("rollouts",),
    "training": ("rollouts in training", "evaluations in training"),
    "evaluation": ("final evaluation", "bandit"),
}


def replies_by_stage(params: Params) -> dict[str, float]:
    """Replies that each stage asks the target for; an upper bound, since a training may stop early.

    The last report of the rollouts says how many turns a tree of a sampler without tree_width has;
    without it such a tree counts as one turn. That of validation says how many prompts there are;
    without it the number that the run asks for is taken.
    """
    evaluation, sizes = params.evaluation, _sizes()
    asked = evaluation.num_rollouts * evaluation.depth * evaluation.num_responses
    asked *= len(targets_of(params.system.target))  # an evaluation leads all against each
    measured = TrialMeasurements(
        rolled=Amount(calls=replies_of_a_tree(params)),
        later=Amount(calls=replies_of_a_tree(params, is_later=True)),
        examined=Amount(calls=asked),
        num_steps=1,
        gradient_s=0.0,
        rolls_out=True,
        num_train=sizes.get("train", _ENOUGH),
        num_dev=sizes.get("dev", _ENOUGH),
        num_test=sizes.get("test", _ENOUGH),
    )
    parts = forecast(params, measured)
    return {stage: sum(parts[name].calls for name in names) for stage, names in _PARTS.items()}


def replies_of_a_tree(params: Params, *, is_later: bool = False) -> float:
    """Replies that one run of a prompt asks for; see ``replies_by_stage``.

    ``is_later``: after the first experience, which may raise the number of replies to a probe.
    """
    options: Any = find("sampler", params.rollouts.sampler).options
    width, depth = getattr(options, "tree_width", 0), getattr(options, "tree_depth", 0)
    turns = float(sum(width**level for level in range(1, depth + 1)))
    if not turns:
        known = _last_rollouts()
        turns = 1.0 if known is None else known.num_turns / max(known.num_prompts, 1)
    return turns * (most_replies(options) if is_later else getattr(options, "num_responses", 1))


def cost_of_a_reply() -> float | None:
    """What the target charged for one reply in the last rollouts; None if unknown."""
    found = _last_rollouts()
    used = None if found is None else found.target
    if not used or "cost" not in used or not used.get("calls"):
        return None
    return used["cost"] / used["calls"]


def _last_rollouts() -> RolloutsRecord | None:
    try:
        return read_record(ROLLOUTS, RolloutsRecord)
    except DataError:
        return None


def _sizes() -> dict[str, int]:
    try:
        return {name: int(count) for name, count in read_json(VALIDATION)["splits"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
