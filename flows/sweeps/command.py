"""``astra sweep`` compares settings and seeds, and offers the best as the candidate."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from flows.usage import AsJsonObject
from tasks.machine.console import say

if TYPE_CHECKING:
    from flows.sweeps.table import SweepResult


def sweep(
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUES", help="1e-4,7e-4 or log:1e-5..1e-3; repeatable."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of every setting: 0..4, or 0,3.")] = "0",
    sampler: Annotated[str, typer.Option(help="grid, random or optuna.")] = "grid",
    count: Annotated[int, typer.Option(help="Number of settings that random and optuna try.")] = 10,
    jobs: Annotated[int, typer.Option(help="Points at a time; 0 chooses by the machine.")] = 0,
    register: Annotated[
        bool, typer.Option(help="Make the best point the registry's candidate.")
    ] = True,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the points.")] = False,
    as_json: AsJsonObject = False,
) -> None:
    """Compare settings over seeds, each point in its own workspace."""
    from flows.servers.environment import quiet_run
    from flows.sweeps.points import make_points
    from flows.sweeps.samplers import read_asked, sampler_called
    from tasks.params.checks import check_params

    # Before a server starts, which takes seconds.
    axes, numbers = read_asked(assignments or [], seeds, sampler, count=count, jobs=jobs)
    if dry_run:
        _list_points(assignments or [], seeds, sampler, count=count, jobs=jobs, as_json=as_json)
        return
    for point in make_points(sampler_called(sampler)(axes, count, {}), numbers)[:: len(numbers)]:
        check_params(point.params)
    with quiet_run():
        from flows.sweeps.flow import sweep as run_sweep

        found = run_sweep(
            assignments or [], seeds=seeds, sampler=sampler, count=count, jobs=jobs, offer=register
        )
    _tell(found, as_json=as_json)
    if found.failed:
        raise typer.Exit(1)


def _list_points(
    settings: list[str], seeds: str, sampler: str, *, count: int, jobs: int, as_json: bool
) -> None:
    from flows.sweeps.flow import plan
    from flows.sweeps.running import kept_result

    planned = plan(settings, seeds, sampler, count=count, jobs=jobs)
    points = [
        {"name": point.name, "state": "would run" if kept_result(point) is None else "finished"}
        for point in planned.next_points()
    ]
    if as_json:
        say(json.dumps({"points": points}, indent=2))
        return
    for point in points:
        say(f"{point['state']:<13}{point['name']}")
    total = count * len(planned.seeds)
    # Optuna chooses a few settings at a time, by the results of those before.
    later = f", the first of {total}" if sampler == "optuna" and len(points) < total else ""
    say(f"{len(points)} points{later}; nothing has run")


def _tell(found: "SweepResult", *, as_json: bool) -> None:
    from flows.sweeps.points import SWEEPS
    from flows.sweeps.table import best_of

    if as_json:
        say(json.dumps(found.record(), indent=2))
        return
    page = SWEEPS / found.name / "sweep.md"
    say("")
    for line in page.read_text(encoding="utf-8").rstrip().splitlines():
        say(line)
    best = best_of(found.rows)
    say("")
    if best is not None:
        changes = shlex.join(word for text in best.setting for word in ("--set", text))
        say(f"{'best':<13}{best.name}; adopt it with: astra run {changes}".rstrip())
    if found.candidate is not None:
        version = f"{found.candidate.model_name} version {found.candidate.version}"
        say(f"{'candidate':<13}{version}; decide about it with: astra promote")
    say(f"{'table':<13}{page}")
