"""The results of a sweep: a row for each setting, with the mean over seeds and its interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from astra_core.metrics.statistics import Interval
from flows.sweeps.running import PointResult
from flows.sweeps.space import Setting
from tasks.machine.tables import markdown
from tasks.records.receipt import RegistrationReceipt

HEADER = ("setting", "seeds", "attack success", "gain", "on dev", "unique probes", "s")


@dataclass(frozen=True, slots=True)
class SettingResult:
    """The points of one setting.

    ``dev_success``: mean success on the dev prompts; None if a point has none.
    """

    setting: Setting
    points: tuple[PointResult, ...]
    num_failed: int
    success: Interval
    lift: Interval
    dev_success: float | None

    @property
    def objective(self) -> float:
        """The figure that the best setting maximises: success on dev, or on test without dev."""
        return self.success.value if self.dev_success is None else self.dev_success

    @property
    def name(self) -> str:
        """Its name for people."""
        return " ".join(self.setting) or "params.yaml as it is"

    def best_point(self) -> PointResult:
        """The point with the best seed by the same figure."""
        return max(
            self.points,
            key=lambda own: own.success.value if own.dev_success is None else own.dev_success,
        )

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "setting": list(self.setting),
            "seeds": [point.seed for point in self.points],
            "num_failed": self.num_failed,
            "attack_success_rate": self.success.record(),
            "lift": self.lift.record(),
            "dev_success_rate": self.dev_success,
            "run_ids": [point.run_id for point in self.points],
        }


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        candidate: The best point as a version of the registry, if it was registered.
        run_id: The id of the sweep's MLflow run; None if the tracker was unreachable.
    """

    name: str
    rows: tuple[SettingResult, ...]
    failed: Mapping[str, str]
    candidate: RegistrationReceipt | None
    run_id: str | None

    def record(self) -> dict[str, Any]:
        """As JSON."""
        best = best_of(self.rows)
        return {
            "name": self.name,
            "settings": [row.record() for row in self.rows],
            "best": None if best is None else list(best.setting),
            "failed": dict(self.failed),
            "candidate": None if self.candidate is None else self.candidate.version,
            "run_id": self.run_id,
        }


def setting_results(
    settings: Sequence[Setting],
    found: Mapping[Setting, Sequence[PointResult | None]],
    *,
    confidence: float,
) -> list[SettingResult]:
    """The results of each setting with at least one point that succeeded.

    ``found``: the points of each setting by seed; None for a failed point.
    """
    rows = []
    for setting in settings:
        points = tuple(point for point in found.get(setting, ()) if point is not None)
        if not points:
            continue
        dev = [point.dev_success for point in points]
        known = [value for value in dev if value is not None]
        rows.append(
            SettingResult(
                setting=setting,
                points=points,
                num_failed=len(found[setting]) - len(points),
                success=over_seeds([point.success for point in points], confidence),
                lift=over_seeds([point.lift for point in points], confidence),
                dev_success=fmean(known) if len(known) == len(dev) else None,
            )
        )
    return rows


def over_seeds(intervals: Sequence[Interval], confidence: float) -> Interval:
    """The mean over seeds with Student's interval; for one seed its own interval over prompts.

    ``confidence``: probability inside the interval, if the seeds' figures are normal (Student 1908,
    "The probable error of a mean").
    """
    if len(intervals) == 1:
        return intervals[0]
    from scipy.stats import t

    values = [interval.value for interval in intervals]
    mean, num = fmean(values), len(values)
    half = float(t.ppf((1.0 + confidence) / 2.0, num - 1)) * stdev(values) / math.sqrt(num)
    return Interval(mean, mean - half, mean + half)


def best_of(rows: Sequence[SettingResult]) -> SettingResult | None:
    """The setting with the best success on dev prompts, which leaves its test figure unbiased.

    Only settings whose points all succeeded count, unless there is none; of equals the first wins.
    """
    whole = [row for row in rows if not row.num_failed] or list(rows)
    if any(row.dev_success is None for row in whole):
        return max(whole, key=lambda row: row.success.value, default=None)
    return max(whole, key=lambda row: row.objective, default=None)


def table(rows: Sequence[SettingResult], *, failed: Mapping[str, str]) -> str:
    """The rows in Markdown, the best marked, and below them the points that failed."""
    best = best_of(rows)
    text = markdown(HEADER, [_cells(row, is_best=row is best) for row in rows])
    lines = [f"{name} failed: {reason}" for name, reason in failed.items()]
    return "\n\n".join([text, *lines]) + "\n"


def _cells(row: SettingResult, *, is_best: bool) -> tuple[str, ...]:
    unique = [point.unique_probes for point in row.points if point.unique_probes is not None]
    return (
        row.name + (" (best)" if is_best else ""),
        f"{len(row.points)}" + (f" of {len(row.points) + row.num_failed}" * bool(row.num_failed)),
        row.success.spelled(),
        row.lift.spelled("+.3f"),
        "" if row.dev_success is None else f"{row.dev_success:.3f}",
        f"{fmean(unique):.2f}" if unique else "",
        f"{sum(point.seconds for point in row.points):.0f}",
    )
