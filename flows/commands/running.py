"""``astra run`` and ``astra resume``: the pipeline from prompts to the promotion decision."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flows.runs.requests import RunRequest
    from tasks.promotion.decision import PromotionDecision

BANNER = (
    "Astra trains an attacker to provoke offensive replies from a language model.\n"
    "Content warning: rollouts hold such text; reports and logs mask it."
)


def steps_that_begin_with(incomplete: str) -> list[str]:
    """The steps that a shell offers to complete this beginning."""
    from flows.runs.requests import STEPS

    return [name for name in STEPS if name.startswith(incomplete)]


_STEP = {"metavar": "STEP", "autocompletion": steps_that_begin_with}


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(run)
    app.command()(resume)


def run(
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A value for this run only; repeatable."),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write --set and --preset into params.yaml first.")
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Lay params/NAME.yaml over params.yaml for this run."),
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
    from dataclasses import replace

    from astra_core.errors import ConfigurationError
    from flows.runs.requests import RunRequest
    from flows.settings import change_params, overrides_of
    from tasks.machine.console import say

    started = time.monotonic()
    asked = RunRequest(only=only, start=start, end=end, force=force)
    if as_json and not dry_run:
        msg = "--json must come with --dry-run, got it alone; see 'astra status --json'"
        raise ConfigurationError(msg)
    if dry_run:
        pairs, _ = overrides_of(assignments or [], preset=preset)
        _show_plan(replace(asked, overrides=pairs), warm_start=warm_start, as_json=as_json)
        return
    say(BANNER)
    if save:
        for line in change_params(assignments or [], preset=preset):
            say(f"params.yaml    {line}")
    else:
        pairs, lines = overrides_of(assignments or [], preset=preset)
        for line in lines:
            say(f"this run       {line}")
        asked = replace(asked, overrides=pairs)
    finish(asked, warm_start=warm_start, started=started)


def _show_plan(request: "RunRequest", *, warm_start: str | None, as_json: bool) -> None:
    from flows.runs.planning import show_plan
    from flows.runs.warm_start import begun_from
    from tasks.machine.console import say

    if warm_start is not None:
        request, line = begun_from(warm_start, request)
        if not as_json:
            say(line)
    show_plan(request, as_json=as_json)


def resume() -> None:
    """Resume a run that did not end, with the same values and steps."""
    from flows.runs.last_request import request_to_resume
    from tasks.machine.console import say

    started = time.monotonic()
    request = request_to_resume()
    say(BANNER)
    for key, value in request.overrides:
        say(f"this run       {key}: {value}")
    finish(request, warm_start=None, started=started)


def finish(request: "RunRequest", *, warm_start: str | None, started: float) -> None:
    """Runs the pipeline and prints the result."""
    from flows.runs.last_request import forget_request

    decision = _decision(request, warm_start=warm_start)
    forget_request()
    from flows.runs.summary import run_summary
    from tasks.machine.console import say

    for line in run_summary(decision, seconds=time.monotonic() - started):
        say(line)


def _decision(request: "RunRequest", *, warm_start: str | None) -> "PromotionDecision | None":
    from flows.runs.confirmation import confirmed

    if warm_start is None and (decision := confirmed(request)) is not None:
        return decision
    from flows.servers.environment import quiet_run

    def prepare() -> None:
        import flows.training  # noqa: F401 - takes seconds, as the check of parameters does
        from flows.runs.preparation import check_early

        # What a version to begin from changes is known only to the flow.
        if warm_start is None:
            check_early(request.values)

    with quiet_run(prepare):
        from flows.training import red_team_training

        return red_team_training(
            force=request.force,
            warm_start=warm_start,
            overrides=request.values,
            only=request.only,
            start=request.start,
            end=request.end,
        )
