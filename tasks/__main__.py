"""``python -m tasks STAGE``: one stage, one line on the screen, one exit status.

0 done, 1 a bug, 2 a mistake in params.yaml or the files, 3 a failed gate, 128 + signal when it was
stopped.
"""

import argparse
import faulthandler
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from itertools import islice

from astra_core.errors import AstraError, ConfigurationError
from astra_core.files import write_text
from tasks.machine.console import Parser, complain, open_streams, quiet_libraries, say
from tasks.machine.environment import set_environment
from tasks.machine.garbage import collect_rarely
from tasks.machine.memory import memory_limit, too_little_memory
from tasks.machine.parents import end_with_dvc
from tasks.machine.privacy import keep_private
from tasks.params.checks import check_params, tell_warnings
from tasks.params.models import ModelsConfiguration
from tasks.params.reference import SCHEMA_FILE, schema_drift, schema_text
from tasks.params.schema import Params, read_params
from tasks.pipeline import failures
from tasks.pipeline.boundary import complain_of, run_stage
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import PIPELINE_FILE, check_name, drift, find_stage, render
from tasks.pipeline.precision import advise
from tasks.promotion.power import Exam
from tasks.sources.files import read_rows
from tasks.sources.rows import columns_of

# How compiled code ends that gets no memory under a limit of addresses.
_OUT_OF_MEMORY = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS}
# More prompts than these are enough for every duel.
_MOST_ROWS = 100_000


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after what the command line asks for is done."""
    open_streams()
    collect_rarely()
    parser = _parser()
    asked = parser.parse_args(arguments)
    # Writes to descriptor 2, the log while a stage runs, which so shows a crash in compiled code.
    faulthandler.enable(2)
    failures.stop_on_terminate()
    if lacking := too_little_memory():
        complain(f"error: {lacking}")
        return failures.EXIT_MISTAKE
    keep_private()
    actions: dict[str, Callable[[], int]] = {
        "stage": lambda: _run_named(asked.stage, show_trace=asked.traceback),
        "render": lambda: _render(check=asked.check),
        "check": _check,
        "doctor": lambda: _doctor(is_fixing=asked.fix, as_json=asked.json),
        "list": _list,
    }
    chosen = [action for name, action in actions.items() if getattr(asked, name)]
    if not chosen:
        parser.print_usage(sys.stderr)
        return failures.EXIT_MISTAKE
    try:
        return chosen[0]()
    except Exception as error:
        told = failures.plain(error)
        if not isinstance(told, AstraError):
            raise
        if asked.traceback:
            complain("".join(traceback.format_exception(error)).rstrip())
        complain_of(told)
        return failures.EXIT_MISTAKE
    except SystemExit as error:
        complain(f"error: {failures.failure_of(error).message}")
        return failures.EXIT_BUG
    except (KeyboardInterrupt, failures.Stopped) as error:
        complain(failures.failure_of(error).message)
        return failures.exit_status(error)


def _run_named(name: str, *, show_trace: bool) -> int:
    check_name(name)
    # Compiled code that gets no memory aborts: another process must be there to say so.
    child = os.fork() if memory_limit() else 0
    if child:
        return _told_end(child, name)
    end_with_dvc()
    return run_stage(name, show_trace=show_trace)


def _told_end(child: int, stage: str) -> int:
    """The exit status of the process of a stage, after a line if a signal ended it."""
    try:
        end_with_dvc()
        ended = os.waitpid(child, 0)[1]
    except failures.Stopped as error:
        os.kill(child, error.number)
        ended = os.waitpid(child, 0)[1]
    except KeyboardInterrupt:  # the terminal sent it to both
        ended = os.waitpid(child, 0)[1]
    status = os.waitstatus_to_exitcode(ended)
    if status >= 0:
        return status
    # Of a signal that somebody sent, DVC's process tells.
    if -status in _OUT_OF_MEMORY:
        told = f"stage {stage} {failures.cut_off(status)}, got{memory_limit()}; raise 'ulimit -v'"
        complain(f"error: {told}")
    return failures.EXIT_SIGNAL - status


def _check() -> int:
    params = read_params()
    set_environment(params)
    quiet_libraries()
    check_params(params)
    _check_folders(params.models)
    advise(params)
    tell_warnings(params)
    exam = exam_of(params)
    for line in exam.lines() if exam else ():
        say(line)
    say("params.yaml is usable")
    return 0


def exam_of(params: Params) -> Exam | None:
    """The exam if every prompt of the source is valid; None for a hub, which is not asked.

    Raises ConfigurationError if the file lacks the column, DataError if the file is broken.
    """
    prompts = params.prompts
    if prompts.source == "hub":
        return None
    count = prompts.num_builtin
    if prompts.source == "file" and prompts.path is not None:
        count = sum(1 for _ in islice(read_rows(prompts.path, columns_of(prompts)), _MOST_ROWS))
    return Exam(params, round(count * prompts.test_share(count)))


def _check_folders(models: ModelsConfiguration) -> None:
    """Checks the folders of models as their stage does, but for what only loading them shows."""
    named = models.sources.values()
    paths = [model.path for model in named if model.source == "folder" and model.path]
    if paths:
        from tasks.sources.folder_checks import check_folder

        for path in dict.fromkeys(paths):
            check_folder(path)


def _render(*, check: bool) -> int:
    params = read_params()
    if not check:
        write_text(render(params=params), PIPELINE_FILE, is_shared=True)
        SCHEMA_FILE.parent.mkdir(exist_ok=True)
        write_text(schema_text(), SCHEMA_FILE, is_shared=True)
        say(f"{PIPELINE_FILE} and {SCHEMA_FILE} are written")
        return 0
    difference = drift(params=params) or schema_drift()
    if difference is not None:
        raise ConfigurationError(difference)
    say(f"{PIPELINE_FILE} says what the stages say")
    return 0


def _list() -> int:
    for name in STAGE_NAMES:
        say(f"{name:<13}{find_stage(name).description}")
    return 0


def _doctor(*, is_fixing: bool, as_json: bool) -> int:
    from tasks.machine.doctor import diagnose, fix_all

    # The environment of the defaults: the doctor must work where params.yaml cannot be read, too.
    set_environment(Params())
    quiet_libraries()
    findings = diagnose()
    fixed: list[str] = []
    if is_fixing:
        fixed = fix_all(findings)
        findings = diagnose()
    if as_json:
        say(json.dumps([finding.record(fixed) for finding in findings], indent=2))
    else:
        for subject in fixed:
            say(f"fixed    {subject}")
        for finding in findings:
            say(finding.line())
    return failures.EXIT_MISTAKE if any(not finding.ok for finding in findings) else 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m tasks", description="Run one stage, or check the project.")
    parser.add_argument("stage", nargs="?", help=f"one of {', '.join(STAGE_NAMES)}")
    parser.add_argument("--check", action="store_true", help="check the whole of params.yaml")
    parser.add_argument(
        "--render", action="store_true", help="write dvc.yaml; with --check, compare"
    )
    parser.add_argument("--list", action="store_true", help="show the stages")
    parser.add_argument("--doctor", action="store_true", help="check this machine")
    parser.add_argument("--fix", action="store_true", help="with --doctor, fix what it can")
    parser.add_argument("--json", action="store_true", help="with --doctor, as JSON")
    parser.add_argument("--traceback", action="store_true", help="show stack traces and all output")
    return parser


if __name__ == "__main__":
    failures.leave(main())
