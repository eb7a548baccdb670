"""The charts of a report, drawn from what the run keeps."""

from collections.abc import Mapping, Sequence

import pandas as pd

from astra_core.metrics.statistics import Interval
from tasks.figures.turns import TurnRates
from tasks.records.evaluation import RATE, EvaluationRecord
from tasks.report.charts import (
    FIRST,
    MUTED,
    SECOND,
    THIRD,
    Chart,
    LevelLine,
    Line,
    draw_lines,
    draw_path,
    draw_scores,
    draw_spans,
    line_of,
)
from tasks.report.material import Material

_STEP = "update"
_REWARD, _KL = "eval/reward_mean", "eval/kl_nats"
_ROLES = {"trained": "attacker", "untrained": "baseline"}


def pictures(material: Material) -> list[Chart]:
    """The charts of one version; those with nothing to show are left out."""
    found = [
        _success(material),
        _reward(material),
        _kl({"": material}),
        _turns({label: _rates(material, role) for label, role in _ROLES.items()}),
        _diversity(material),
        _scores(material.table),
        _categories(material.evaluation),
    ]
    return [chart for chart in found if chart is not None]


def pictures_of_two(first: Material, second: Material) -> list[Chart]:
    """The charts that show two versions together."""
    both = {first.name: first, second.name: second}
    colours = (FIRST, SECOND)
    curves = {
        "Success during training": (f"eval/{RATE}", "attack success"),
        "Reward during training": (_REWARD, "reward"),
        "Unique probes during training": ("eval/unique_probes", "share"),
    }
    found: list[Chart | None] = []
    for number, (head, (column, label)) in enumerate(curves.items()):
        lines = [
            line_of(own.steps, column, name, colour=colour)
            for (name, own), colour in zip(both.items(), colours, strict=False)
        ]
        svg = draw_lines(lines, name=f"{head}, both", labels=(_STEP, label), is_share=number != 1)
        found.append(_chart(head, "On dev prompts; bands are intervals where there are any.", svg))
    found.append(_kl(both))
    found.append(_turns({name: _rates(own, "attacker") for name, own in both.items()}))
    return [chart for chart in found if chart is not None]


def _success(material: Material) -> Chart | None:
    lines = [line_of(material.steps, f"eval/{RATE}", "on dev prompts")]
    levels = [
        LevelLine(f"{label}, on test prompts", material.evaluation.rate(role), colour)
        for (label, role), colour in zip(_ROLES.items(), (THIRD, SECOND), strict=True)
    ]
    svg = draw_lines(
        lines,
        name="Attack success during training",
        labels=(_STEP, "attack success"),
        levels=levels,
        is_share=True,
    )
    return _chart(
        "Attack success during training", "Bands are bootstrap intervals over prompts.", svg
    )


def _reward(material: Material) -> Chart | None:
    lines = [
        line_of(
            _per_experience(material.steps),
            "rollout/reward",
            "of training rollouts",
            colour=MUTED,
            is_dashed=True,
        ),
        line_of(material.steps, _REWARD, "on dev prompts"),
    ]
    levels = []
    if material.turns is not None:
        spans = {"trained": material.turns.attacker, "untrained": material.turns.baseline}
        levels = [
            LevelLine(f"{label}, on test prompts", own.reward, colour)
            for (label, own), colour in zip(spans.items(), (THIRD, SECOND), strict=True)
        ]
    svg = draw_lines(lines, name="Reward during training", labels=(_STEP, "reward"), levels=levels)
    return _chart(
        "Reward during training",
        "What the algorithm maximises. Bands are intervals over test prompts.",
        svg,
    )


def _kl(versions: Mapping[str, Material]) -> Chart | None:
    points = {name: _path(own.steps) for name, own in versions.items()}
    svg = draw_path(points, name="KL against reward")
    return _chart(
        "KL against reward",
        "Each point is an evaluation on dev prompts, numbered by training step. Reward that costs "
        "much KL may be the judge's weakness rather than the target's.",
        svg,
    )


def _path(steps: pd.DataFrame) -> list[tuple[float, float, int]]:
    if not {_KL, _REWARD, "training_step"} <= set(steps.columns):
        return []
    rows = steps.dropna(subset=[_KL, _REWARD])
    columns = (rows[name].tolist() for name in (_KL, _REWARD, "training_step"))
    return [
        (float(kl), float(reward), int(step)) for kl, reward, step in zip(*columns, strict=True)
    ]


def _turns(rates: Mapping[str, TurnRates | None]) -> Chart | None:
    lines = [
        # Of one turn there is no course.
        None if own is None or len(own.success) < 2 else _by_turn(label, own.success, colour)
        for (label, own), colour in zip(rates.items(), (FIRST, SECOND), strict=False)
    ]
    svg = draw_lines(
        lines, name="Success by turn", labels=("turn", "success by then"), is_share=True, whole=True
    )
    return _chart(
        "Success by turn", "Share of rollouts with a success in this turn or an earlier one.", svg
    )


def _by_turn(label: str, spans: Sequence[Interval], colour: str) -> Line:
    places = [float(turn) for turn in range(1, len(spans) + 1)]
    ends = ([getattr(span, end) for span in spans] for end in ("value", "low", "high"))
    value, low, high = ends
    return Line(label, places, value, low, high, colour)


def _rates(material: Material, role: str) -> TurnRates | None:
    return None if material.turns is None else getattr(material.turns, role)


def _diversity(material: Material) -> Chart | None:
    columns = {"eval/unique_probes": "unique probes", "eval/distinct_2": "distinct-2"}
    lines = [
        line_of(material.steps, column, label, colour=colour)
        for (column, label), colour in zip(columns.items(), (FIRST, SECOND), strict=True)
    ]
    svg = draw_lines(
        lines, name="Diversity during training", labels=(_STEP, "share"), is_share=True
    )
    return _chart(
        "Diversity during training",
        "Share of probes that differ, and of word pairs that differ. An attacker that repeats "
        "itself has found only one weakness.",
        svg,
    )


def _scores(table: pd.DataFrame) -> Chart | None:
    if "score_mean" not in table.columns:
        return None
    scores = {
        label: table.loc[table["role"] == role, "score_mean"].dropna().tolist()
        for label, role in _ROLES.items()
    }
    svg = draw_scores(scores, name="Scores of prompts")
    return _chart("Scores of prompts", "Test prompts by the mean score of their turns.", svg)


def _categories(evaluation: EvaluationRecord) -> Chart | None:
    rows = {
        f"{label} ({own.num_prompts})": (own.attacker, own.baseline)
        for label, own in evaluation.categories.items()
    }
    svg = draw_spans(rows, name="Success by category", owners=("trained", "untrained"))
    return _chart("Success by category", "With the number of prompts of each category.", svg)


def _per_experience(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per training step, because all updates of an experience share its figures."""
    if "rollout/reward" not in steps.columns or "training_step" not in steps.columns:
        return steps.iloc[:0]
    return steps.dropna(subset=["rollout/reward"]).drop_duplicates("training_step")


def _chart(title: str, caption: str, svg: str | None) -> Chart | None:
    return None if svg is None else Chart(title, caption, svg)
