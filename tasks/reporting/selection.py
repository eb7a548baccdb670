"""The optimism of selection: an attacker's success where it was chosen, minus elsewhere."""

import math
from collections.abc import Sequence
from pathlib import Path

from astra_core.metrics.statistics import rate_interval
from tasks.promotion.drift import drift_between
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.evaluation import Selection
from tasks.records.reports import read_record


def was_selected(attacker: Path) -> bool:
    """Whether evaluations during training chose the attacker in this folder."""
    path = attacker / ATTACKER_FILE
    if not path.is_file():
        return False
    note = read_record(path, AttackerNote)
    return note.kept == "best" and note.value is not None


def optimism(
    chosen_on: Sequence[float],
    examined_on: Sequence[float],
    *,
    num_resamples: int,
    confidence: float,
    seed: int,
) -> Selection:
    """The success rate on the selection prompts, and its excess over the examination's.

    The two sets of prompts are disjoint, so the interval is for two independent means.

    Args:
        chosen_on: Success rate of each prompt by which the checkpoint was chosen.
        examined_on: The same for the prompts of the examination.
        num_resamples: Resamples of the bootstrap.
        confidence: Probability inside an interval.
        seed: Same seed, same interval.
    """
    rate = rate_interval(chosen_on, num_resamples=num_resamples, confidence=confidence, seed=seed)
    # A prompt without a judged reply says nothing.
    judged = [[rate for rate in own if not math.isnan(rate)] for own in (chosen_on, examined_on)]
    excess = drift_between(*judged, confidence=confidence)
    return Selection(num_prompts=len(chosen_on), attack_success_rate=rate, optimism=excess)
