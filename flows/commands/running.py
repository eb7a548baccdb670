"""``astra run``: the pipeline from prompts to the promotion decision."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import ConfigurationError
from tasks.machine.console import quiet_libraries, say

if TYPE_CHECKING:
    from flows.runs.requests import RunRequest
    from tasks.promotion.decision import PromotionDecision

BANNER = (
    "Astra trains an attacker to provoke offensive replies from a language model.\n"
    "Content warning: rollouts hold such text; reports and logs mask it."
)

BEFORE = Path(".astra/params.before.yaml")
"""The file with params.yaml as it was before the last --set, --preset or --warm-start."""


def steps_that_begin_with(incomplete: str) -> list[str]:
    """The steps that a shell offers to complete this beginning."""
    from flows.runs.requests import STEPS

    return [name for name in STEPS if name.startswith(incomplete)]


_STEP = {"metavar": "STEP", "autocompletion": steps_that_begin_with}


def run(
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Write a value into params.yaml first."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Lay params/NAME.yaml over params.yaml first."),
    ] = None,
    force: Annotated[bool, typer.Option(help="Also run stages that are up to date.")] = False,
    only: Annotated[str | None, typer.Option("--only", help="Run only this step.", **_STEP)] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="Begin with this step.", **_STEP)
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="End after this step.", **_STEP)] = None,
    warm_start: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Begin from a version: champion, or a number."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, why and how long; run nothing.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --dry-run: print one JSON object.")
    ] = False,
) -> None:
    """Run the pipeline from prompts to the promotion decision; skip what is up to date."""
    from flows.runs.requests import RunRequest
    from flows.runs.summary import run_summary
    from flows.runs.turns import in_turn
    from flows.settings import change_params

    started = time.monotonic()
    request = RunRequest(only=only, start=start, end=end, force=force)
    if as_json and not dry_run:
        msg = "--json must come with --dry-run, got it alone; see 'astra status --json'"
        raise ConfigurationError(msg)
    if not as_json and not dry_run:
        say(BANNER)
    wanted = list(assignments or [])
    with nullcontext() if dry_run else in_turn():
        if warm_start is not None:
            from flows.runs.warm_start import begin_from

            quiet_libraries()
            wanted += begin_from(warm_start, wanted, preset=preset, is_quiet=as_json)
        if dry_run:
            _show_plan(request, wanted, preset=preset, as_json=as_json)
            return
        say_changes(change_params(wanted, preset=preset, before=BEFORE))
        decision = _decision(request)
        for line in run_summary(decision, seconds=time.monotonic() - started):
            say(line)


def say_changes(lines: list[str]) -> None:
    """Prints what changed in params.yaml, and how to undo it; nothing if nothing did."""
    for line in lines:
        say(f"params.yaml    {line}")
    if lines:
        say(f"undo           cp {BEFORE} params.yaml")


def _show_plan(
    request: "RunRequest", assignments: list[str], *, preset: str | None, as_json: bool
) -> None:
    from flows.runs.planning import show_plan
    from flows.settings import as_if
    from tasks.params.checks import check_params
    from tasks.params.schema import read_params

    with as_if(assignments, preset=preset):
        params = read_params()
        if assignments or preset is not None:
            check_params(params)
        show_plan(request, params, as_json=as_json)


def _decision(request: "RunRequest") -> "PromotionDecision | None":
    from flows.runs.confirmation import standing_decision

    if (decision := standing_decision(request)) is not None:
        return decision
    from flows.servers.environment import quiet_run

    def prepare() -> None:
        import flows.training  # noqa: F401 - takes seconds, as the check of parameters does
        from flows.runs.preparation import check_early

        check_early()

    with quiet_run(prepare):
        from flows.training import red_team_training

        return red_team_training(
            force=request.force, only=request.only, start=request.start, end=request.end
        )
