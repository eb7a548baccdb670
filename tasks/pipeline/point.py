"""Several stages of a workspace in one process: ``python -m tasks.pipeline.point STAGE...``.

Two workspaces with an equal stage take turns: with ``STAGE=FILE`` the stage holds a lock on the
file, and the second workspace finds the result in the DVC cache that they share.
"""

import fcntl
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tasks.machine.console import Parser
from tasks.machine.garbage import collect_rarely
from tasks.machine.parents import end_group_with_parent
from tasks.machine.privacy import keep_private
from tasks.pipeline.order import check_name
from tasks.pipeline.reproduction import TURN_S, asked_to_stop, reproduce

STOPPED = 128 + signal.SIGTERM


def run_stages(turns: Sequence[str]) -> int:
    """The exit status of the first stage that failed, or 0."""
    for turn in turns:
        stage, _, lock = turn.partition("=")
        with _turn(Path(lock) if lock else None):
            status = STOPPED if asked_to_stop.is_set() else reproduce(stage)
        if status:
            return status
    return 0


@contextmanager
def _turn(lock: Path | None) -> Iterator[None]:
    """Holds the lock while the body runs; waits for it until it is free or we are asked to stop."""
    if lock is None:
        yield
        return
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        while not asked_to_stop.is_set():
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                asked_to_stop.wait(TURN_S)
            else:
                break
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after what the command line asks for is done."""
    collect_rarely()
    parser = Parser(prog="python -m tasks.pipeline.point")
    parser.add_argument("turns", nargs="+", metavar="STAGE[=FILE]")
    turns = parser.parse_args(arguments).turns
    for turn in turns:
        check_name(turn.partition("=")[0])
    # Before DVC is imported, and with a handler that no stage inherits, as in ``reproduction``.
    keep_private()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    end_group_with_parent()
    return run_stages(turns)


if __name__ == "__main__":
    sys.exit(main())
