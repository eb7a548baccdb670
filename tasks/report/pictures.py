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
    for head, (column, label) in curves.items():
        lines = [
            line_of(own.steps, column, name, colour=colour)
            for (name, own), colour in zip(both.items(), colours, strict=False)
        ]
        found.append(
            draw_lines(
                lines,
                head,
                "On dev prompts; bands are intervals where there are any.",
                name=f"{head}, both",
                labels=(_STEP, label),
                is_share=column != _REWARD,
            )
        )
    found.append(_kl(both))
    found.append(_turns({name: _rates(own, "attacker") for name, own in both.items()}))
    return [chart for chart in found if chart is not None]


def _success(material: Material) -> Chart | None:
    spans = {label: material.evaluation.rate(role) for label, role in _ROLES.items()}
    return draw_lines(
        [line_of(material.steps, f"eval/{RATE}", "on dev prompts")],
        "Attack success during training",
        "Bands are bootstrap intervals over prompts.",
        labels=(_STEP, "attack success"),
        levels=_levels(spans),
        is_share=True,
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
    rates = {label: _rates(material, role) for label, role in _ROLES.items()}
    return draw_lines(
        lines,
        "Reward during training",
        "What the algorithm maximises. Bands are intervals over test prompts.",
        labels=(_STEP, "reward"),
        levels=_levels({label: own.reward for label, own in rates.items() if own is not None}),
    )


def _levels(spans: Mapping[str, Interval]) -> list[LevelLine]:
    """What the trained and the untrained attacker reach on test prompts."""
    colours = {"trained": THIRD, "untrained": SECOND}
    return [
        LevelLine(f"{label}, on test prompts", span, colours[label])
        for label, span in spans.items()
    ]


def _kl(versions: Mapping[str, Material]) -> Chart | None:
    return draw_path(
        {name: _path(own.steps) for name, own in versions.items()},
        "KL against reward",
        "Each point is an evaluation on dev prompts, numbered by training step. Reward that costs "
        "much KL may be the judge's weakness rather than the target's.",
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
    return draw_lines(
        lines,
        "Success by turn",
        "Share of rollouts with a success in this turn or an earlier one.",
        labels=("turn", "success by then"),
        is_share=True,
        whole=True,
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
    return draw_lines(
        lines,
        "Diversity during training",
        "Share of probes that differ, and of word pairs that differ. An attacker that repeats "
        "itself has found only one weakness.",
        labels=(_STEP, "share"),
        is_share=True,
    )


def _scores(table: pd.DataFrame) -> Chart | None:
    if "score_mean" not in table.columns:
        return None
    scores = {
        label: table.loc[table["role"] == role, "score_mean"].dropna().tolist()
        for label, role in _ROLES.items()
    }
    caption = "Test prompts by the mean score of their turns."
    return draw_scores(scores, "Scores of prompts", caption)


def _categories(evaluation: EvaluationRecord) -> Chart | None:
    rows = {
        f"{label} ({own.num_prompts})": (own.attacker, own.baseline)
        for label, own in evaluation.categories.items()
    }
    caption = "With the number of prompts of each category."
    return draw_spans(rows, "Success by category", caption, owners=tuple(_ROLES))


def _per_experience(steps: pd.DataFrame) -> pd.DataFrame:
    """One row per training step, because all updates of an experience share its figures."""
    if "rollout/reward" not in steps.columns or "training_step" not in steps.columns:
        return steps.iloc[:0]
    return steps.dropna(subset=["rollout/reward"]).drop_duplicates("training_step")
