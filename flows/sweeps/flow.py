"""The flow that tries many settings and seeds, each point as a Prefect task.

Finished points are never run again, however the sweep ended before: the same parameters ask for the
same points, and the result of each is in ``sweeps/points``.
"""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from astra_core.files import record_digest, write_json, write_text
from flows.errors import StageError
from flows.orchestration.lost_runs import note_process
from flows.orchestration.reports import publish_page
from flows.orchestration.stages import can_pass, with_retries
from flows.registry import is_registered
from flows.runs.limits import limit_of
from flows.runs.preparation import usable_params
from flows.servers.processes import stop_all
from flows.sweeps.points import SWEEPS, Point, make_points
from flows.sweeps.running import PointResult, kept_result, register_point, run_point
from flows.sweeps.samplers import read_asked, sampler_called
from flows.sweeps.space import Axis, Setting
from flows.sweeps.table import SettingResult, SweepResult, best_of, setting_results, table
from tasks.machine.console import say
from tasks.params.checks import check_params
from tasks.params.schema import Params
from tasks.pipeline.names import STAGE_NAMES
from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import read_record, write_record
from tasks.tracking.sweeps import close_sweep, open_sweep


@dataclass(slots=True)
class _Sweep:
    """A sweep that is running."""

    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    sampler: str
    count: int
    jobs: int
    params: Params
    run_id: str | None = None
    found: dict[Setting, list[PointResult | None]] = field(default_factory=dict)
    points: dict[str, Point] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def key(self) -> str:
        """A digest of what it tries."""
        count = 0 if self.sampler == "grid" else self.count
        tried = [repr(self.axes), self.seeds, self.sampler, count]
        return record_digest([tried, self.params.model_dump(mode="json")])

    @property
    def timeout_s(self) -> float:
        """The time limit of one point: those of its stages together."""
        limits = self.params.flow
        return sum(limit_of(name, limits) for name in STAGE_NAMES)

    def results(self) -> list[SettingResult]:
        """The results of every setting that was tried."""
        confidence = self.params.evaluation.confidence
        return setting_results(list(self.found), self.found, confidence=confidence)

    def next_points(self) -> list[Point]:
        """The points of the settings to try next; without any the sweep ends."""
        objectives: dict[Setting, float | None] = dict.fromkeys(self.found)
        objectives |= {row.setting: row.objective for row in self.results()}
        settings = sampler_called(self.sampler)(self.axes, self.count, objectives)
        points = make_points(settings, self.seeds)
        for point in points[:: len(self.seeds)]:
            check_params(point.params)
        return points


@flow(name="sweep", on_running=[note_process])
def sweep(
    settings: list[str] | None = None,
    *,
    seeds: str = "0",
    sampler: str = "grid",
    count: int = 10,
    jobs: int = 0,
    offer: bool = True,
) -> SweepResult:
    """Tries every setting under every seed and offers the best as the candidate.

    Args:
        settings: Axes such as ``training.lr=1e-4,7e-4``; without any only seeds are compared.
        seeds: Seeds such as ``0..4`` or ``0,3``.
        jobs: Points that run at a time; 0 chooses by the machine.

    Raises ConfigurationError if params.yaml, an axis, the seeds or a setting cannot be used;
    StageError if no point succeeded.
    """
    under_way = plan(settings or [], seeds, sampler, count=count, jobs=jobs)
    points = under_way.next_points()
    name = under_way.key[:8]
    under_way.run_id = open_sweep(
        under_way.key,
        name=f"sweep {name}",
        experiment=under_way.params.registration.experiment,
        tags={"astra.sweep.sampler": sampler},
    )
    while points:
        _run_all(under_way, points)
        points = under_way.next_points()
    return _finish(under_way, name, offer=offer)


def plan(settings: Sequence[str], seeds: str, sampler: str, *, count: int, jobs: int) -> _Sweep:
    """The sweep that these parameters ask for; nothing has run."""
    axes, numbers = read_asked(settings, seeds, sampler, count=count, jobs=jobs)
    params = usable_params()
    return _Sweep(axes, numbers, sampler, count, jobs or default_jobs(params), params)


def default_jobs(params: Params) -> int:
    """One point per processor if models are tiny and run on one thread, otherwise one."""
    sources = {source.source for source in params.models.sources.values()}
    is_small = sources == {"builtin"} and params.system.target.name == "causal_lm"
    if params.machine.device != "cpu" or not is_small:
        return 1
    return max(len(os.sched_getaffinity(0)) // (params.machine.num_threads or 1), 1)


def _run_all(under_way: _Sweep, points: Sequence[Point]) -> None:
    """Runs the points, with a line for each, and keeps each result or failure."""
    run = _point_task(under_way)
    found: dict[str, PointResult | None] = {}
    with ThreadPoolExecutor(max_workers=under_way.jobs) as pool:
        try:
            waiting: dict[Future[State[Any]], Point] = {}
            for point in points:
                kept = kept_result(point)
                if kept is not None:
                    found[point.key] = kept
                    say(f"{'finished':<13}{point.name}: {kept.line()}")
                else:
                    # Each thread has its own context, as in Prefect's own runner.
                    waiting[pool.submit(copy_context().run, run, point)] = point
            for future in as_completed(waiting):
                point = waiting[future]
                found[point.key] = _tell_result(under_way, point, future.result())
        except BaseException:
            under_way.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise
    for point in points:
        under_way.points[point.key] = point
        under_way.found.setdefault(point.setting, []).append(found[point.key])


def _point_task(under_way: _Sweep) -> Any:
    """A function that runs one point as a task and returns its state."""

    def may_go_on(task: Any, run: Any, state: State[Any]) -> bool:
        return can_pass(task, run, state) and not under_way.stopped.is_set()

    @with_retries("point", under_way.params.flow, condition=may_go_on, run_name="{name}")
    def run(name: str, number: str) -> PointResult:
        del name
        if under_way.stopped.is_set():
            msg = "the sweep was stopped; the same command resumes it"
            raise StageError(msg)
        return run_point(by_key[number], parent=under_way.run_id, timeout_s=under_way.timeout_s)

    by_key: dict[str, Point] = {}

    def call(point: Point) -> State[Any]:
        by_key[point.key] = point
        return run(point.name, point.key, return_state=True)

    return call


def _tell_result(under_way: _Sweep, point: Point, state: State[Any]) -> PointResult | None:
    """The point's result, after a line about it is printed."""
    result = state.result(raise_on_failure=False)
    if isinstance(result, PointResult):
        say(f"{'done':<13}{point.name}: {result.line()} ({result.seconds:.1f} s)")
        return result
    if not isinstance(result, StageError):
        raise result
    under_way.failed[point.name] = str(result)
    say(f"{'failed':<13}{point.name}: {result}")
    return None


def _finish(under_way: _Sweep, name: str, *, offer: bool) -> SweepResult:
    """The result of the sweep, after its table is written and its best point offered if asked."""
    rows = under_way.results()
    if not rows:
        first = next(iter(under_way.failed.items()), ("", "there was none"))
        msg = f"a sweep must end with a point that went well, got none: {first[0]}: {first[1]}"
        raise StageError(msg)
    page = table(rows, failed=under_way.failed)
    folder = SWEEPS / name
    write_text(page, folder / "sweep.md")
    candidate = _candidate(under_way, rows, name) if offer else None
    result = SweepResult(name, tuple(rows), under_way.failed, candidate, under_way.run_id)
    write_json(result.record(), folder / "sweep.json")
    best = best_of(rows)
    close_sweep(
        under_way.run_id,
        table=page,
        record=result.record(),
        figures={} if best is None else best.success.flat("best/attack_success_rate"),
        is_whole=not under_way.failed,
    )
    publish_page("sweep", page, "All points of the sweep")
    return result


def _candidate(
    under_way: _Sweep, rows: Sequence[SettingResult], name: str
) -> RegistrationReceipt | None:
    """The receipt of the best point, which is registered unless the registry has it already."""
    best = best_of(rows)
    if best is None:
        return None
    point = under_way.points[best.best_point().key]
    path = SWEEPS / name / f"candidate-{point.key[:16]}.json"
    if is_registered(path):
        return read_record(path, RegistrationReceipt)
    receipt = register_point(point, timeout_s=under_way.timeout_s)
    write_record(receipt, path)
    return receipt
