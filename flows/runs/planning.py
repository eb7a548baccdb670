"""``astra run --dry-run``: what a run would do and why, and what it would cost; nothing runs.

Times are those of each stage's last run on this machine, in proportion to the replies that it asks
the target for. ``astra trial`` measures instead, and knows tokens and memory too.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from flows.runs.requests import RunRequest
from flows.status import changed_stages, first_reasons
from tasks.machine.console import quiet_libraries, say_found
from tasks.machine.environment import set_environment
from tasks.machine.time_words import duration
from tasks.params.schema import Params
from tasks.pipeline.durations import expected_seconds
from tasks.pipeline.names import PROMOTION
from tasks.pipeline.order import outdated_stages, stages
from tasks.trials.workload import cost_of_a_reply, replies_by_stage

UP_TO_DATE, WOULD_RUN, MAY_RUN, DECIDES = "up to date", "would run", "may run", "would decide"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a planned run.

    Attributes:
        name: A stage, or ``promotion``.
        state: ``may run`` if it depends on whether an earlier stage changes its result.
        seconds: Estimated from its last run; None if it never ran here, or would not run.
    """

    name: str
    state: str
    reasons: tuple[str, ...] = ()
    seconds: float | None = None
    replies: float = 0.0

    def line(self) -> str:
        """For a person."""
        why = first_reasons(self.reasons)
        parts = [f"{self.state}: {why}" if why else self.state]
        if self.state in {WOULD_RUN, MAY_RUN}:
            took = "time unknown" if self.seconds is None else f"about {duration(self.seconds)}"
            parts.append(took)
        if self.replies:
            parts.append(f"{self.replies:,.0f} replies of the target")
        return f"{self.name:<13}{'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A planned run.

    ``cost``: the cost of the target's replies, in its currency; None if unknown.
    """

    steps: tuple[PlannedStep, ...]
    cost: float | None

    @property
    def running(self) -> tuple[PlannedStep, ...]:
        """The stages that would or may run."""
        return tuple(step for step in self.steps if step.state in {WOULD_RUN, MAY_RUN})

    @property
    def seconds(self) -> float | None:
        """Seconds of all steps that would or may run; None if one is unknown."""
        found = [step.seconds for step in self.running]
        return None if None in found else sum(filter(None, found))

    @property
    def replies(self) -> float:
        """Replies of all steps that would or may run."""
        return sum(step.replies for step in self.running)

    def record(self) -> dict[str, Any]:
        """The plan as JSON."""
        steps = [asdict(step) for step in self.steps]
        totals = {"seconds": self.seconds, "replies": self.replies, "cost": self.cost}
        return {"steps": steps, **totals}

    def lines(self) -> Iterator[str]:
        """The plan for a person."""
        yield from (step.line() for step in self.steps)
        if not self.running:
            yield f"{'in all':<13}nothing to run"
            return
        known = self.seconds
        took = "time unknown, as a stage has not run here yet"
        if known is not None:
            took = f"at most about {duration(known)}"
        cost = "" if self.cost is None else f", cost {self.cost:,.2f}"
        yield f"{'in all':<13}{took}; {self.replies:,.0f} replies of the target{cost}"
        yield "nothing was run; 'astra trial' measures one batch"


def show_plan(request: RunRequest, params: Params, *, as_json: bool) -> None:
    """Prints what the run would do."""
    quiet_libraries()
    plan = plan_run(request, params)
    say_found(plan.record(), plan.lines(), as_json=as_json)


def plan_run(request: RunRequest, params: Params) -> RunPlan:
    """The plan of the run, from DVC and the reports of the last run."""
    set_environment(params)
    reasons = changed_stages()
    for name, why in outdated_stages(params):
        if why not in reasons.setdefault(name, []):
            reasons[name].append(why)
    if request.force:
        reasons = {name: ["--force", *reasons.get(name, [])] for name in request.stages}
    steps = tuple(_steps(request, params, reasons))
    price = cost_of_a_reply()
    replies = sum(step.replies for step in steps)
    return RunPlan(steps, None if price is None else price * replies)


def _steps(
    request: RunRequest, params: Params, reasons: dict[str, list[str]]
) -> Iterator[PlannedStep]:
    known, changing = stages(), set[str]()
    replies = replies_by_stage(params)
    for name in request.stages:
        before = [other for other in changing if {*known[other].products} & {*known[name].deps}]
        state, why = UP_TO_DATE, tuple(reasons.get(name, ()))
        if why:
            state = WOULD_RUN
        elif before:
            state = MAY_RUN
            why = tuple(f"after {other}" for other in request.stages if other in before)
        if state == UP_TO_DATE:
            yield PlannedStep(name, state)
            continue
        changing.add(name)
        amount = replies.get(name, 1.0)
        seconds = expected_seconds(name, amount=amount)
        yield PlannedStep(name, state, why, seconds, replies.get(name, 0.0))
    if request.decides:
        yield PlannedStep(PROMOTION, DECIDES)
