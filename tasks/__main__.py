"""``python -m tasks STAGE``: one stage, one line on the screen, one exit status.

0 done, 1 a bug, 2 a mistake in params.yaml or the files, 3 a failed gate, 128 + signal when it was
stopped.
"""

import argparse
import faulthandler
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from astra_core.errors import AstraError, ConfigurationError, DataError
from astra_core.files import write_text
from tasks import failures
from tasks.console import complain, libraries_to, quiet_libraries, say
from tasks.environment import set_environment
from tasks.params import Params, check_params, read_params
from tasks.pipeline import (
    PIPELINE_FILE,
    STAGE_NAMES,
    check_name,
    drift,
    find_stage,
    outside_inputs,
    render,
)
from tasks.stage import Stage


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what the command line asks; the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    # Writes to descriptor 2, so a crash in compiled code is told in the log once a stage runs.
    faulthandler.enable(2)
    failures.stop_on_terminate()
    actions: dict[str, Callable[[], int]] = {
        "stage": lambda: _run_named(asked.stage, show_trace=asked.traceback),
        "render": lambda: _render(check=asked.check),
        "check": _check,
        "doctor": _doctor,
        "list": _list,
    }
    chosen = [action for name, action in actions.items() if getattr(asked, name)]
    if not chosen:
        parser.print_usage(sys.stderr)
        return failures.EXIT_MISTAKE
    try:
        return chosen[0]()
    except AstraError as error:
        if asked.traceback:
            traceback.print_exc()
        _complain_of(error)
        return failures.EXIT_MISTAKE


def run_stage(
    name: str, *, find: Callable[[str], Stage] = find_stage, show_trace: bool = False
) -> int:
    """Runs one stage in this process and leaves its failure, if any, in a file; the exit status.

    Args:
        name: Of the stage, for the screen and the files.
        find: Imports the stage, inside the boundary that turns an exception into a line.
        show_trace: Lets stack traces and the libraries' words onto the screen.
    """
    started = time.monotonic()
    log = failures.LOGS / f"{name}.log"
    failures.clear_failure(name)
    log.unlink(missing_ok=True)
    try:
        stage, params = _prepared(find(name))
        with nullcontext() if show_trace else libraries_to(log):
            line = stage.run(params).summary()
        say(f"{name:<13}{line} ({time.monotonic() - started:.1f} s)")
    except (Exception, KeyboardInterrupt, failures.Stopped) as error:  # noqa: BLE001 - the boundary
        if show_trace:
            traceback.print_exc()
        else:
            _write_trace(error, log)
        return _report(error, name, log)
    return 0


def _run_named(name: str, *, show_trace: bool) -> int:
    check_name(name)
    return run_stage(name, show_trace=show_trace)


def _prepared(stage: Stage) -> tuple[Stage, Params]:
    """The stage and the whole of params.yaml, checked, with the environment set for them."""
    params = read_params()
    set_environment(params)
    quiet_libraries()
    check_params(params)
    if "DVC_STAGE" in os.environ:
        # DVC watches what dvc.yaml names: a file that only params.yaml names would go stale unseen.
        watched = Path("dvc.yaml").read_text(encoding="utf-8")
        for path in outside_inputs(params).get(stage.name, ()):
            if path.as_posix() not in watched:
                msg = f"dvc.yaml must name {path}, which params.yaml reads; run 'make render'"
                raise ConfigurationError(msg)
    for path in stage.deps:
        if not path.exists():
            msg = (
                f"stage {stage.name} must find {path}, got no such path; "
                f"'dvc repro {stage.name}' makes it"
            )
            raise DataError(msg)
    return stage, params


def _write_trace(error: BaseException, log: Path) -> None:
    """Adds the stack trace to what the libraries said."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))


def _report(error: BaseException, name: str, log: Path) -> int:
    """Tells the person and the flow why the stage failed; the exit status."""
    failure, status = failures.failure_of(error), failures.exit_status(error)
    failures.write_failure(failure, name)
    if isinstance(error, AstraError):
        _complain_of(error)
    elif status == failures.EXIT_BUG:
        words = " ".join(failure.message.split())
        complain(f"bug in stage {name}: {failure.error}: {words}; the trace is in {log}")
    else:
        complain(f"{name} {failure.message}")
    return status


def _complain_of(error: AstraError) -> None:
    """One line for each problem."""
    for line in str(error).splitlines():
        complain(f"error: {line}")


def _check() -> int:
    params = read_params()
    set_environment(params)
    quiet_libraries()
    check_params(params)
    say("params.yaml is usable")
    return 0


def _render(*, check: bool) -> int:
    params = read_params()
    if not check:
        write_text(render(params=params), PIPELINE_FILE)
        say(f"{PIPELINE_FILE} is written")
        return 0
    difference = drift(params=params)
    if difference is not None:
        raise ConfigurationError(difference)
    say(f"{PIPELINE_FILE} says what the stages say")
    return 0


def _list() -> int:
    for name in STAGE_NAMES:
        say(f"{name:<13}{find_stage(name).description}")
    return 0


def _doctor() -> int:
    from tasks.doctor import diagnose

    findings = diagnose()
    for finding in findings:
        say(finding.line())
    return failures.EXIT_MISTAKE if any(not finding.ok for finding in findings) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tasks", description="Run one stage, or look.")
    parser.add_argument("stage", nargs="?", help=f"one of {', '.join(STAGE_NAMES)}")
    parser.add_argument("--check", action="store_true", help="check the whole of params.yaml")
    parser.add_argument(
        "--render", action="store_true", help="write dvc.yaml; with --check, compare"
    )
    parser.add_argument("--list", action="store_true", help="show the stages")
    parser.add_argument("--doctor", action="store_true", help="look over this machine")
    parser.add_argument("--traceback", action="store_true", help="show stack traces and all output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
