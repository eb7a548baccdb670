"""The command line ``astra``. A user's mistake is one line on stderr, never a traceback."""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import wraps
from io import StringIO
from typing import Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from astra_core.errors import AstraError
from flows.commands import (
    beginning,
    calibration,
    caring,
    chronicle,
    deciding,
    evaluating,
    findings,
    hardening,
    looking,
    model_serving,
    quickstart,
    report,
    restoring,
    running,
    serving,
    trying,
)
from flows.sweeps import command as sweeps
from flows.usage import Assignments, Preset, project_folder, read_from, usage_line, working_folder
from tasks.machine.console import complain, open_streams, say, say_plainly, show_trace

# Typer and our console alone are imported here, so that `astra --help` answers at once.

STOPPED = (130, 143)  # by Ctrl-C, by SIGTERM
RESUMES = {"run", "sweep", "harden", "baselines", "quickstart"}
# Typer has click's exceptions in a private module.
USAGE_ERROR = cast("type[Exception]", typer.BadParameter.__base__)

GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "Begin": {
        "init": beginning.init,
        "quickstart": quickstart.quickstart,
        "import": beginning.import_model,
        "doctor": looking.doctor,
        "check": looking.check,
        "params": looking.params,
        "validate": looking.validate,
        "trial": trying.trial,
        "tune-lr": trying.tune_lr,
        "judge-check": calibration.judge_check,
    },
    "Run": {
        "run": running.run,
        "status": looking.status,
        "sweep": sweeps.sweep,
        "harden": hardening.harden,
    },
    "Look": {
        "report": report.report,
        "compare": report.compare,
        "examples": looking.examples,
        "findings": findings.findings,
        "evaluate": evaluating.evaluate,
        "baselines": evaluating.baselines,
        "history": chronicle.history,
        "champion": chronicle.champion,
        "lineage": chronicle.lineage,
        "drift": chronicle.drift,
    },
    "Decide": {
        "promote": deciding.promote,
        "rollback": deciding.rollback,
        "reevaluate": deciding.reevaluate,
        "restore": restoring.restore,
        "export": restoring.export,
    },
    "Serve": {
        "ui": serving.ui,
        "deploy": serving.deploy,
        "worker": serving.worker,
        "serve": model_serving.serve,
        "serve-jobs": model_serving.serve_jobs,
    },
    "Maintain": {"migrate": looking.migrate, "render": looking.render, "gc": caring.gc},
}
"""Every command, in the order in which a person meets them."""
_WITHOUT = {"init", "quickstart", "import", "doctor", "run", "report", "compare", "examples"} | {
    *("restore", "ui", "deploy", "worker", "migrate", "render")
}
"""Those that read no parameters, or that write or compare the file params.yaml itself."""


class Grouped(TyperGroup):
    """Help that lists commands by what they are for; only Rich's, which is off, has panels."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's
        """Writes a section for each group."""
        longest = max(map(len, self.commands))
        for title, names in GROUPS.items():
            # Two lines at most: click would cut a sentence to fit one.
            told = [
                (name.ljust(longest), self.commands[name].get_short_help_str(2 * formatter.width))
                for name in names
            ]
            with formatter.section(title):
                formatter.write_dl(told, col_max=formatter.width)


class FromHere(TyperCommand):
    """A command whose paths are those of the folder it was called in, not of the project's."""

    def invoke(self, ctx: Any) -> Any:
        """Runs it in the project's folder."""
        for name, value in ctx.params.items():
            if str(ctx.get_parameter_source(name)).endswith("COMMANDLINE"):
                ctx.params[name] = read_from(ctx.meta["here"], value)
        return super().invoke(ctx)


app = typer.Typer(
    name="astra",
    cls=Grouped,
    help="Train a red-team attacker, examine it, register it and decide about it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Runs the command line and ends the process with its status."""
    from tasks.machine.garbage import collect_rarely
    from tasks.machine.memory import too_little_memory
    from tasks.pipeline.failures import Stopped, exit_status, leave, stop_on_terminate

    open_streams()
    collect_rarely()
    sys.excepthook = show_trace
    stop_on_terminate()
    if told := too_little_memory():
        complain(f"error: {told}")
        sys.exit(2)
    try:
        status = run_command(sys.argv[1:])
    except Stopped as error:
        status = exit_status(error)
    if status in STOPPED:
        resumes = " ".join(sys.argv[1:2]) in RESUMES
        complain("stopped; the same command resumes from here" if resumes else "stopped")
    leave(status)


def run_command(arguments: Sequence[str]) -> int:
    """The exit status of ``astra`` with these arguments: 2 a mistake, 3 a gate, 130 Ctrl-C."""
    from tasks.pipeline.failures import failure_of

    try:
        status = _show_help(arguments) if "--help" in arguments else _run(arguments)
    except USAGE_ERROR as error:
        # Without arguments this is the help, which has many lines.
        message = str(getattr(error, "message", "") or cast("Any", error).format_message())
        complain(usage_line(error, message, arguments))
        return 2
    except SystemExit as error:  # SystemExit of a plug-in: typer raises none here
        complain(f"error: {failure_of(error).message}")
        return 1
    except Exception as error:  # noqa: BLE001 - the boundary to the user
        return _explain(error)
    return int(status or 0)


def _show_help(arguments: Sequence[str]) -> Any:
    """The status after a help, which typer prints: with a reader that has gone, it would exit."""
    with redirect_stdout(StringIO()) as told:
        status = _run(arguments, needs_project=False)
    if told.getvalue():
        say_plainly(told.getvalue().rstrip("\n"))
    return status


def _run(arguments: Sequence[str], *, needs_project: bool = True) -> Any:
    return app(arguments, prog_name="astra", standalone_mode=False, obj=needs_project)


def _explain(error: Exception) -> int:
    """One line for each problem that a user can fix; a bug keeps its traceback."""
    from tasks.pipeline.failures import exit_status, plain

    told = plain(error)
    if not isinstance(told, AstraError):
        raise error
    from flows.errors import StageError

    if isinstance(told, StageError):
        complain("the line above says why; the same command resumes from here")
        return 1
    from tasks.pipeline.boundary import complain_of

    complain_of(told)
    return exit_status(told)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"astra {version('astra-red-team')}")
        raise typer.Exit


@app.callback()
def prepare(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Train a red-team attacker, examine it, register it and decide about it."""
    here = context.meta["here"] = working_folder()
    # All other commands need a project, but no help does.
    if context.invoked_subcommand != "init" and context.obj is not False:
        os.chdir(project_folder(here))
    from flows.servers.environment import set_flow_environment
    from tasks.machine.privacy import keep_private

    keep_private()
    set_flow_environment()


def with_values(command: Callable[..., None]) -> Callable[..., None]:
    """The command with ``--set`` and ``--preset``, where it lacks them: it runs as if they held."""
    signature, options = inspect.signature(command), {"assignments": Assignments, "preset": Preset}
    added = {name: each for name, each in options.items() if name not in signature.parameters}

    @wraps(command)
    def run(**given: Any) -> None:
        assignments, preset = (given.pop(each, None) if each in added else None for each in options)
        if not assignments and preset is None:
            return command(**given)
        from flows.settings import as_if

        with as_if(assignments or [], preset=preset):
            return command(**given)

    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=each)
        for name, each in added.items()
    ]
    wanted = signature.replace(parameters=[*signature.parameters.values(), *more])
    # Typer reads both.
    vars(run).update(__signature__=wanted, __annotations__=command.__annotations__ | added)
    return run


for group in GROUPS.values():
    for name, command in group.items():
        app.command(name, cls=FromHere)(command if name in _WITHOUT else with_values(command))


if __name__ == "__main__":
    main()
