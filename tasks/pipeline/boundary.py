"""The boundary: however a stage ends, a person reads one line and a flow finds one file."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from astra_core.errors import (
    AstraError,
    ConfigurationError,
    DataError,
    LostProcessError,
    PluginError,
)
from astra_core.errors.exception_text import masked_trace, shorten, shown_text
from astra_core.executor import shown_by
from astra_core.training.distribution.launch import own_rank, world_size
from tasks.machine.console import (
    at_work,
    complain,
    libraries_to,
    progress,
    quiet_libraries,
    say,
    warnings_shown,
)
from tasks.machine.environment import set_environment, set_up_process
from tasks.machine.parents import end_group_with_parent
from tasks.machine.privacy import keep_private
from tasks.machine.processes import run_together
from tasks.machine.telling import tell_tail
from tasks.machine.thread_waits import set_thread_waits
from tasks.params.checks import check_params
from tasks.params.schema import Params, read_params
from tasks.pipeline import failures
from tasks.pipeline.durations import GROWING, note_duration
from tasks.pipeline.order import find_stage, outside_inputs, watched_by
from tasks.pipeline.precision import advise
from tasks.pipeline.stage import Stage

_SHOWN = 180  # characters of a bug's text; the trace has the rest


def run_stage(
    name: str,
    *,
    find: Callable[[str], Stage] = find_stage,
    show_trace: bool = False,
    is_child: bool = False,
) -> int:
    """The exit status of one stage, after it ran; its failure, if any, is left in a file.

    If several processes run the stage together, only the first prints the result.

    Args:
        find: Imports the stage, inside the boundary that turns an exception into a line.
        is_child: True in the processes that ``_run_together`` starts.
    """
    started, rank, log = time.monotonic(), 0, failures.LOGS / f"{name}.log"
    failures.check_folders()
    if not is_child and _tells_first():
        failures.clear_failure(name)
    try:
        rank = own_rank()
        log = log.with_name(f"{name}.{rank}.log") if rank else log
        log.unlink(missing_ok=True)
        stage, params = _prepare(find(name))
        count = _processes_to_start(stage, params)
        if count > 1:
            return _run_together(name, count, find=find, show_trace=show_trace)
        with (
            nullcontext() if show_trace else libraries_to(log),
            nullcontext() if rank else at_work(name),
            nullcontext() if rank else warnings_shown(),
            shown_by(progress),
            exits_refused(),
        ):
            line = stage.run(params).summary()
        if not rank:
            seconds = time.monotonic() - started
            say(f"{name:<13}{line} ({seconds:.1f} s)")
            _note(name, seconds, params)
    except BaseException as error:  # noqa: BLE001 - the boundary; sys.exit(0) is no success
        if show_trace:
            # Whoever asks for the trace sees it unmasked.
            complain("".join(traceback.format_exception(error)).rstrip())
        else:
            _write_trace(error, log)
        return _report(failures.plain(error), name, log, is_child=is_child)
    return 0


def run_command(name: str, work: Callable[[Params], str]) -> int:
    """The exit status of a command that is no stage, such as a step of a hardening.

    What it tells is printed, line by line; its failure, if any, is left in a file.
    """
    keep_private()
    failures.clear_failure(name)
    failures.stop_on_terminate()
    end_group_with_parent()
    try:
        params = read_params()
        set_up_process(params)
        check_params(params)
        advise(params)
        told = work(params)
    except BaseException as error:  # noqa: BLE001 - the boundary; sys.exit is no success
        shown = failures.plain(error)
        failure = failures.failure_of(shown)
        failures.write_failure(failure, name)
        for line in failure.message.splitlines():
            complain(f"error: {line}")
        return failures.exit_status(shown)
    for line in told.splitlines():
        say(f"{name:<13}{line}")
    return 0


def _note(name: str, seconds: float, params: Params) -> None:
    """Remembers how long the stage took, and for how much work, for the next run's estimate."""
    amount = 1.0
    if name in GROWING:  # the others would load torch for it
        from tasks.trials.workload import replies_by_stage

        amount = replies_by_stage(params)[name]
    note_duration(name, seconds, amount=amount)


def _tells_first() -> bool:
    """Whether this process reports a failure: the first does, and one whose rank makes no sense."""
    try:
        return own_rank() == 0
    except ConfigurationError:
        return True


def _processes_to_start(stage: Stage, params: Params) -> int:
    """How many processes to start for the stage; 1 if this process runs it."""
    started = world_size()
    if not stage.is_parallel and started not in {None, 1}:
        msg = (
            f"stage {stage.name} must run in one process, got WORLD_SIZE {started}; "
            "start it without torchrun"
        )
        raise ConfigurationError(msg)
    return params.machine.num_processes if stage.is_parallel and started is None else 1


def _run_together(name: str, count: int, *, find: Callable[[str], Stage], show_trace: bool) -> int:
    """The exit status of one stage in several processes: that of the one that reports a failure."""
    act = partial(run_stage, name, find=find, show_trace=show_trace, is_child=True)
    statuses = run_together(act, count)
    told = [status for status in statuses if 0 < status < failures.EXIT_SIGNAL]
    if told or not any(statuses):
        return told[0] if told else 0
    ended = [
        f"process {rank + 1} of {count} ended by {signal.Signals(-status).name}"
        for rank, status in enumerate(statuses)
        if status < 0 and -status != signal.SIGTERM
    ]
    words = ended[0] if ended else "no answer from one in time"
    msg = f"every process must take part until the end, got {words}; start again to resume"
    raise LostProcessError(msg)


def _prepare(stage: Stage) -> tuple[Stage, Params]:
    """The stage and the whole of params.yaml, checked, with the environment set for them."""
    params = read_params()
    set_environment(params)
    if "machine" in stage.params:
        set_thread_waits(params.machine.num_threads)
    quiet_libraries()
    check_params(params, is_kept=True)
    if "system" in stage.params:
        advise(params)
    if "DVC_STAGE" in os.environ:
        # DVC watches what dvc.yaml names: it misses an edit of a file that only params.yaml names.
        watched = watched_by(stage.name)
        for path in outside_inputs(stage, params):
            if path.as_posix() not in watched:
                msg = f"dvc.yaml must name {path}, which params.yaml reads; run 'astra render'"
                raise ConfigurationError(msg)
    for path in stage.deps:
        if not path.exists():
            msg = (
                f"stage {stage.name} must find {path}, got no such path; "
                f"'dvc repro {stage.name}' makes it"
            )
            raise DataError(msg)
    failures.check_writable(stage.products)
    return stage, params


def _write_trace(error: BaseException, log: Path) -> None:
    """Adds the masked trace to the log of the libraries, if the disk has room."""
    with suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8") as file:
            file.write(masked_trace(error))


def _report(error: BaseException, name: str, log: Path, *, is_child: bool) -> int:
    """The exit status of a failed stage, after the reason is reported, unless it has been."""
    failure, status = failures.failure_of(error), failures.exit_status(error)
    if is_child and isinstance(error, LostProcessError | failures.Stopped | KeyboardInterrupt):
        # Another process is to blame: the parent process knows which, and reports it.
        return failures.EXIT_SIGNAL + signal.SIGTERM
    if not failures.claim_failure(failure, name):
        return status
    if isinstance(error, PluginError) or status == failures.EXIT_BUG:
        # One line is enough for a mistake; for a bug the trace is needed.
        tell_tail(masked_trace(error))
    if isinstance(error, PluginError):
        complain(shorten(f"error: {failure.message}; the trace is in {log}"))
    elif isinstance(error, AstraError):
        complain_of(error)
    elif status == failures.EXIT_BUG:
        words = shorten(failure.message, limit=_SHOWN)
        complain(f"bug in stage {name}: {failure.error}: {words}; the trace is in {log}")
    else:
        complain(f"{name} {failure.message}")
    return status


def complain_of(error: AstraError) -> None:
    """Prints one line for each problem, shortened where it is long."""
    for line in shown_text(error).splitlines():
        complain(shorten(f"error: {line}"))


@contextmanager
def exits_refused() -> Iterator[None]:
    """In the body, ``os._exit`` raises in this process, so that drafts are removed and it is told.

    Processes that were forked from it end as they ask to.
    """
    leave, own = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != own:
            leave(status)
        caller = sys._getframe(1)  # noqa: SLF001 - no other way to see who asks
        place = f"{caller.f_code.co_filename}, line {caller.f_lineno}"
        msg = f"a stage must end by itself, got os._exit({status}) in {place}; raise an error there"
        raise PluginError(msg)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave
