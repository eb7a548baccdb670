"""Duels: their numbers, the fresh prompts they are fought on, and their outcomes.

The state is in the registry's tags: the candidate has the number and outcome of its duel, the model
the highest number. A number is written before anything is examined and belongs to candidate and
opponent, so the same command, also after a kill, fights the same duel and spends no more error.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from astra_core.errors import ConfigurationError, DataError
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key, derive_seed, generator
from tasks.machine.scratch import scratch_folder
from tasks.params.schema import Params
from tasks.promotion.bands import GateRule, bands, unmeasured_bands
from tasks.promotion.examinations import find_examination
from tasks.promotion.fresh_prompts import fresh_prompts
from tasks.promotion.gate import Comparison, Stake, Verdict, compare, decide
from tasks.promotion.known_prompts import VALID, known_prompts
from tasks.promotion.spending import level_of, place_of
from tasks.records.evaluation import CONFIRMED
from tasks.records.prompts import read_prompts
from tasks.tracking.registry.versions import EVALUATION_KEY_TAG, checkpoint_folder

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

DUEL_TAG = "promotion.duel"
OPPONENT_TAG = "promotion.opponent"
OUTCOME_TAG = "promotion.outcome"
NUM_DUELS_TAG = "promotion.num_duels"
UNTRAINED = "untrained"
SUCCESS = "success_rate"
_UNCONFIRMED = (
    "promotion.require_confirmation must find success that a second judge confirms, got an "
    "evaluation without one; name evaluation.second_judge and run again"
)

Evaluate = Callable[[Path, list[Prompt]], "tuple[Mapping[str, Any], pd.DataFrame]"]
"""Gives the record and per-prompt table of the attacker in a folder on these prompts."""
Draw = Callable[[int], list[Prompt]]
"""Gives the prompts of the duel with this number."""


@dataclass(frozen=True, slots=True)
class Duel:
    """A duel that has its number.

    Attributes:
        opponent: The champion's version, or ``untrained``.
        outcome: Its comparison; None until it is fought.
    """

    number: int
    opponent: str
    outcome: Comparison | None = None


def judge(
    client: "MlflowClient",
    candidate: "ModelVersion",
    champion: "ModelVersion | None",
    *,
    params: Params,
    evaluate: Evaluate,
    draw: Draw,
) -> tuple[Comparison | None, Verdict]:
    """The gate's verdict, and the comparison if it came to a duel.

    ``champion``: a version; None while there is none, and then the registered evaluation of the
    untrained attacker takes its place.

    Raises DataError if the candidate's examination is missing or lacks a figure.
    """
    rules = params.promotion
    found = find_examination(client, candidate, candidate.tags.get(EVALUATION_KEY_TAG, ""))
    if found is None:
        msg = (
            f"candidate version {candidate.version} must have its examination in the artifacts of "
            f"run {candidate.run_id}, got none; run the stage registration again"
        )
        raise DataError(msg)
    report, table = found
    if rules.require_confirmation and CONFIRMED not in table.columns:
        row = GateRule("second judge", "none", "", "confirms success", held=False)
        return None, Verdict(passed=False, reasons=(_UNCONFIRMED,), rules=(row,))
    kept = bands(report, table, rules)
    broken = tuple(rule.broken() for rule in kept if rule.held is False)
    if broken:
        # No duel, so no error is spent.
        return None, Verdict(passed=False, reasons=broken, rules=kept)
    duel = open_duel(client, candidate, str(champion.version) if champion else UNTRAINED)
    if champion is None:
        own, other = (table[table["role"] == role] for role in ("attacker", "baseline"))
        comparison = compare(own, other, **interval_options(params))
    else:
        comparison = fight(
            client,
            duel,
            candidate=candidate,
            champion=champion,
            params=params,
            evaluate=evaluate,
            draw=draw,
        )
    stake = Stake(
        level_of(duel.number, rules),
        place=place_of(duel.number, rules),
        horizon=rules.horizon,
        against_champion=champion is not None,
    )
    verdict = decide(comparison, rules=rules, stake=stake)
    notes = unmeasured_bands(kept)
    if rules.require_confirmation:
        notes = (*notes, "success counts where both judges saw it")
    reasons, tried = (*verdict.reasons, *notes), (*kept, *verdict.rules)
    return comparison, replace(verdict, reasons=reasons, rules=tried)


def open_duel(client: "MlflowClient", candidate: "ModelVersion", opponent: str) -> Duel:
    """The duel of these two, with its number, or a new one if it has none."""
    name, version = candidate.name, str(candidate.version)
    tags = client.get_model_version(name, version).tags
    if tags.get(OPPONENT_TAG) == opponent and DUEL_TAG in tags:
        outcome = TypeAdapter(Comparison | None).validate_json(tags.get(OUTCOME_TAG) or "null")
        return Duel(int(tags[DUEL_TAG]), opponent, outcome)
    # It is written before a version's own, so no version has a higher one.
    number = 1 + int(client.get_registered_model(name).tags.get(NUM_DUELS_TAG) or 0)
    # The model's tag is written first: a number may be lost, but none is used twice.
    client.set_registered_model_tag(name, NUM_DUELS_TAG, str(number))
    for key, value in ((OUTCOME_TAG, ""), (DUEL_TAG, str(number)), (OPPONENT_TAG, opponent)):
        client.set_model_version_tag(name, version, key, value)
    return Duel(number, opponent)


def fight(
    client: "MlflowClient",
    duel: Duel,
    *,
    candidate: "ModelVersion",
    champion: "ModelVersion",
    params: Params,
    evaluate: Evaluate,
    draw: Draw,
) -> Comparison:
    """The comparison of candidate and champion on the duel's prompts, kept in the candidate's tags.

    Args:
        duel: The duel of these two; one that was fought is not fought again.
        params: ``evaluation`` and ``training_seed``, for the interval.
    """
    if duel.outcome is not None:
        return duel.outcome
    prompts = draw(duel.number)
    tables = []
    for version in (candidate, champion):
        with checkpoint_folder(client, version) as weights:
            tables.append(evaluate(weights, prompts)[1])
    found = compare(*tables, **interval_options(params))
    record = json.dumps(asdict(found))
    client.set_model_version_tag(candidate.name, str(candidate.version), OUTCOME_TAG, record)
    return found


def interval_options(params: Params) -> dict[str, Any]:
    """The options of the evaluation's own interval of the gain."""
    evaluation = params.evaluation
    return {
        "confidence": evaluation.confidence,
        "num_resamples": evaluation.num_resamples,
        "seed": params.training_seed,
        "column": CONFIRMED if params.promotion.require_confirmation else SUCCESS,
    }


def draw_with(client: "MlflowClient", params: Params) -> Draw:
    """A function that draws a duel's prompts: from the grammar, a file, or unused test prompts."""

    def draw(number: int) -> list[Prompt]:
        rules, seed = params.promotion, derive_seed(params.data_seed, "duel", number)
        if params.prompts.source != "builtin" and rules.fresh_path is None:
            return _held_back(params, seed)
        known = known_prompts(client, params.registration.model_name)
        evaluation = params.evaluation.model_copy(update={"num_prompts": rules.num_prompts})
        with scratch_folder() as folder:
            found, _ = fresh_prompts(
                params.model_copy(update={"evaluation": evaluation}),
                known.fingerprints,
                fresh_seed=seed,
                file=rules.fresh_path,
                folder=folder,
            )
        return found

    return draw


def _held_back(params: Params, seed: int) -> list[Prompt]:
    """Prompts of the test split that the evaluation leaves out, in an order set by the duel."""
    prompts = read_prompts(VALID / "test.parquet")
    rest = prompts[params.evaluation.num_prompts :]
    if len(rest) < params.promotion.min_prompts:
        msg = (
            f"a duel must have at least {params.promotion.min_prompts} test prompts that the "
            f"evaluation leaves out, got {len(rest)}; name a file as promotion.fresh_path, raise "
            "prompts.test_fraction or lower evaluation.num_prompts"
        )
        raise ConfigurationError(msg)
    order = generator(derive_key(seed, "held back")).permutation(len(rest))
    return [rest[place] for place in np.asarray(order)[: params.promotion.num_prompts]]
