"""The command line ``astra``. A user's mistake is one line on stderr, never a traceback."""

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from flows import chronicle, report
from flows.calibration import calibrate
from flows.serving import serve, serve_jobs
from flows.sweeps import command as sweeps
from flows.usage import project_folder, usage_line, working_folder

# Only typer is imported here, so that `astra --help` answers at once.

BANNER = (
    "Astra trains an attacker to provoke offensive replies from a language model.\n"
    "Content warning: rollouts hold such text; reports and logs mask it."
)
STOPPED = (130, 143)  # by Ctrl-C, by SIGTERM
# Typer has click's exceptions in a private module.
USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__base__)
port = partial(typer.Option, min=1, max=65_535)
fresh_seed = partial(typer.Option, min=0, max=2**62)

app = typer.Typer(
    name="astra",
    help="Train a red-team attacker, examine it, register it and decide about it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Runs the command line and ends the process with its status."""
    from tasks.machine.console import complain, show_trace
    from tasks.pipeline.failures import Stopped, exit_status, stop_on_terminate

    sys.excepthook = show_trace
    stop_on_terminate()
    try:
        status = run_command(sys.argv[1:])
    except Stopped as error:
        status = exit_status(error)
    if status in STOPPED:
        complain("stopped; the same command resumes from here")
    sys.exit(status)


def run_command(arguments: Sequence[str]) -> int:
    """The exit status of ``astra`` with these arguments: 2 a mistake, 3 a gate, 130 Ctrl-C."""
    from tasks.machine.console import complain
    from tasks.pipeline.failures import failure_of

    try:
        status = app(arguments, prog_name="astra", standalone_mode=False)
    except USAGE_ERROR as error:
        # Without arguments this is the help, which has many lines.
        message = str(getattr(error, "message", "") or cast("Any", error).format_message())
        complain(usage_line(error, message, arguments))
        return 2
    except SystemExit as error:  # of a plug-in's: typer raises none here
        complain(f"error: {failure_of(error).message}")
        return 1
    except Exception as error:  # noqa: BLE001 - the boundary to the user
        return _explain(error)
    return int(status or 0)


def _explain(error: Exception) -> int:
    """One line for each problem that a user can fix; a bug keeps its traceback."""
    from astra_core.errors import AstraError
    from tasks.pipeline.failures import exit_status, plain

    told = plain(error)
    if not isinstance(told, AstraError):
        raise error
    from flows.errors import StageError
    from tasks.machine.console import complain

    if isinstance(told, StageError):
        complain("the line above says why; the same command resumes from here")
        return 1
    from tasks.pipeline.boundary import complain_of

    complain_of(told)
    return exit_status(told)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"astra {version('astra-red-team')}")
        raise typer.Exit


@app.callback()
def prepare(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Train a red-team attacker, examine it, register it and decide about it."""
    os.chdir(project_folder(working_folder()))
    from flows.servers.environment import set_flow_environment
    from tasks.machine.privacy import keep_private

    keep_private()
    set_flow_environment()


@app.command()
def run(
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change params.yaml first; repeatable."),
    ] = None,
    force: Annotated[bool, typer.Option(help="Also run stages that are up to date.")] = False,
    warm_start: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Train on from a version: champion, or a number."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Lay params/NAME.yaml over params.yaml first."),
    ] = None,
) -> None:
    """Run the pipeline from prompts to the promotion decision; skip what is up to date."""
    from flows.settings import change_params
    from tasks.machine.console import say

    started = time.monotonic()
    say(BANNER)
    for line in change_params(assignments or [], preset=preset):
        say(f"params.yaml    {line}")
    _run_training(force=force, warm_start=warm_start, started=started)


def _run_training(*, force: bool, warm_start: str | None, started: float) -> None:
    from flows.servers.environment import quiet_run
    from tasks.machine.console import say

    with quiet_run():
        from flows.training import red_team_training

        decision = red_team_training(force=force, warm_start=warm_start)
    from flows.summary import run_summary

    for line in run_summary(decision, seconds=time.monotonic() - started):
        say(line)


@app.command()
def check() -> None:
    """Check all of params.yaml; loads no weights."""
    _run_tasks("--check")


@app.command()
def doctor() -> None:
    """List what would stop a run on this machine."""
    _run_tasks("--doctor")


@app.command()
def render(
    check: Annotated[bool, typer.Option(help="Only compare.")] = False,
) -> None:
    """Write dvc.yaml from the stages' signatures."""
    _run_tasks("--render", *(["--check"] if check else []))


def _run_tasks(*arguments: str) -> None:
    from tasks.__main__ import main as run_tasks

    raise typer.Exit(run_tasks(arguments))


@app.command()
def status() -> None:
    """Show which stages would run and who is champion."""
    from flows.status import status_lines
    from tasks.machine.console import say

    for line in status_lines():
        say(line)


@app.command()
def promote() -> None:
    """Decide about the registered candidate again."""
    from flows.servers.environment import quiet_run
    from tasks.machine.console import say

    with quiet_run():
        from flows.promotion import promotion

        say(promotion().summary())


@app.command()
def rollback() -> None:
    """Make the previous champion champion again."""
    from tasks.machine.console import quiet_libraries, say
    from tasks.params.schema import read_params
    from tasks.promotion.decision import rollback as roll_back
    from tasks.records.receipt import RECEIPT
    from tasks.report.publish import renew_report

    quiet_libraries()
    found = roll_back(read_params().registration.model_name)
    say(found.summary())
    if found.withdrawn_version:
        renew_report(found.model_name, found.withdrawn_version, receipt=RECEIPT)


@app.command()
def examples(
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the text unmasked.")] = False,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many turns.")] = 10,
) -> None:
    """Show the turns of the last evaluation that scored highest, masked."""
    from tasks.machine.console import say
    from tasks.reporting.examples import read_examples

    say(read_examples(count=count, is_revealed=reveal))


@app.command()
def trial(
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As if params.yaml said so; repeatable."),
    ] = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the text unmasked.")] = False,
    price: Annotated[
        float | None,
        typer.Option("--price-per-million-tokens", min=0.0, help="Of the target's tokens."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try one batch and estimate the whole run; changes nothing."""
    from flows.trial import try_batch

    try_batch(assignments or [], price=price, is_revealed=reveal, as_json=as_json)


app.command()(calibrate)
app.command()(serve)
app.command()(serve_jobs)


@app.command()
def tune_lr(
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As if params.yaml said so; repeatable."),
    ] = None,
    lowest: Annotated[float, typer.Option(help="Rate to begin with.")] = 1e-5,
    highest: Annotated[float, typer.Option(help="Rate to end with.")] = 3e-3,
    count: Annotated[int, typer.Option(max=100, help="How many rates.")] = 6,
    target: Annotated[
        float | None,
        typer.Option("--target-nats", min=1e-6, help="How far an experience may move a probe."),
    ] = None,
    save: Annotated[bool, typer.Option("--save", help="Write it to params.yaml.")] = False,
) -> None:
    """Try learning rates on one experience each and suggest one; writes nothing."""
    from flows.tuning import tune_rate

    tune_rate(
        assignments or [],
        lowest=lowest,
        highest=highest,
        count=count,
        target=target,
        is_saved=save,
    )


@app.command()
def reevaluate(
    seed: Annotated[int | None, fresh_seed(help="Of the fresh prompts; default: today.")] = None,
    file: Annotated[Path | None, typer.Option(help="Prompts from a file instead.")] = None,
) -> None:
    """Evaluate the champion on prompts it has never seen."""
    if file is not None and not file.is_file():
        from astra_core.errors import ConfigurationError

        msg = f"--file must name a file of prompts, got {file}; there is none"
        raise ConfigurationError(msg)
    from flows.servers.environment import quiet_run

    with quiet_run():
        from flows.reevaluation import champion_reevaluation

        # Its process has already printed the error.
        champion_reevaluation(seed=seed, file=file, return_state=True).result()


@app.command()
def ui(
    prefect_port: Annotated[int, port(help="Of Prefect's pages.")] = 4200,
    mlflow_port: Annotated[int, port(help="Of MLflow's pages.")] = 5000,
    worker: Annotated[bool, typer.Option(help="Also run what is scheduled.")] = False,
    detach: Annotated[bool, typer.Option(help="Leave them running.")] = False,
    stop: Annotated[bool, typer.Option(help="Stop those left running.")] = False,
    login: Annotated[bool, typer.Option(help="Print the link that logs a browser in.")] = False,
    env: Annotated[bool, typer.Option(help="Print shell variables for 'prefect'.")] = False,
) -> None:
    """Serve Prefect's and MLflow's pages on this machine, until Ctrl-C."""
    from flows.servers.pages import serve_pages, stop_pages, tell_environment, tell_login

    if stop:
        stop_pages()
    elif login:
        tell_login()
    elif env:
        tell_environment()
    else:
        serve_pages(
            prefect_port=prefect_port, mlflow_port=mlflow_port, worker=worker, detach=detach
        )


@app.command()
def deploy() -> None:
    """Register the schedules of prefect.yaml with the running Prefect server."""
    from flows.orchestration.deployment import deploy_all
    from tasks.machine.console import say

    for line in deploy_all():
        say(line)


@app.command()
def worker() -> None:
    """Run what is scheduled, until Ctrl-C."""
    from flows.orchestration.deployment import run_worker

    raise typer.Exit(run_worker())


chronicle.register(app)
report.register(app)
sweeps.register(app)


if __name__ == "__main__":
    main()
