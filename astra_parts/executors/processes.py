"""Workers that are processes of this machine, spawned by Python's ``multiprocessing``.

Each worker is at the other end of a pipe. If the pipe closes, the worker has died: its shard waits
again and another worker is started. A worker ends by itself as soon as its parent is gone.
"""

import os
import signal
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from astra_core.config import Section
from astra_core.executor import Advance, Executor, Weights, Work
from astra_parts.executors.bench import Bench, Held, Task
from astra_parts.executors.ledger import Ledger, WorkersOptions

_POLL_S = 0.2
_GRACE_S = 2.0


@dataclass(slots=True, eq=False)
class _Worker:
    """A process, what it has been sent, and the call and task that it works on.

    ``call``: the number of the call of its present task; 0 while it is idle.
    """

    process: BaseProcess
    pipe: Connection
    held: Held = field(default_factory=Held)
    call: int = 0

    def send(self, work: Work, weights: Weights | None, *, shard: Any, call: int) -> None:
        """Gives it a shard, with what it does not hold yet."""
        self.call = call
        task = Task.of(work, weights, shard)
        self.pipe.send((call, task, *self.held.missing(work, weights)))

    def end(self) -> None:
        """Ends the process and reaps it."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(_GRACE_S)
        self.process.kill()
        self.process.join()


class ProcessesExecutor(Executor):
    """``num_workers`` processes of this machine, which live until ``close``."""

    class Options(WorkersOptions):
        """The number of workers, and how slow and dead ones are handled."""

    options: Options

    def __init__(self, options: Section) -> None:
        super().__init__(options)
        self._workers: list[_Worker] = []
        self._call = 0
        self.ledger: Ledger | None = None
        weakref.finalize(self, _end_all, self._workers)

    @property
    def num_workers(self) -> int:
        """As many as the options say."""
        return self.options.num_workers

    def results(
        self, work: Work, shards: Sequence[Any], *, weights: Weights | None, advance: Advance
    ) -> list[Any]:
        """See ``Executor.results``."""
        self._call += 1
        self.ledger = ledger = Ledger(shards, self.options)
        while not ledger.is_complete:
            self._hand_out(ledger, work, weights)
            pipes = {own.pipe: own for own in self._workers}
            for ready in wait(list(pipes), _POLL_S):
                self._hear(pipes[ready], ledger, advance)  # type: ignore[index]
        return ledger.results()

    def close(self) -> None:
        """Ends all workers."""
        _end_all(self._workers)

    def _hand_out(self, ledger: Ledger, work: Work, weights: Weights | None) -> None:
        """Gives every idle worker a shard, if one waits; starts workers up to their number."""
        wanted = min(self.options.num_workers, len(ledger.shards))
        while len(self._workers) < wanted:
            self._workers.append(_start())
        for worker in [own for own in self._workers if not own.call]:
            number = ledger.take(worker)
            if number is None:
                return
            with suppress(OSError):  # one that died meanwhile: the pipe says so, too
                worker.send(work, weights, shard=ledger.shards[number], call=self._call)

    def _hear(self, worker: _Worker, ledger: Ledger, advance: Advance) -> None:
        """Takes what a worker has sent, or notes that it died."""
        try:
            call, result, error = worker.pipe.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            worker.end()
            ledger.lose(worker, _end(worker.process))
            return
        worker.call = 0
        if call != self._call:  # of a call that did not wait for it
            return
        if error is not None:
            raise error
        if ledger.put(worker, result):
            advance(1)


def _start() -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True, name="astra worker")
    process.start()
    # Their end must be open in the worker alone: then it closes with the worker.
    theirs.close()
    return _Worker(process, ours)


def _end(process: BaseProcess) -> str:
    status = process.exitcode or 0
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"exit status {status}"


def _end_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()


def _serve(pipe: Connection) -> None:
    """Runs a worker: it does shards until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    bench = Bench()
    with suppress(EOFError, OSError):
        while True:
            call, *asked = pipe.recv()
            pipe.send((call, *bench.answer(*asked)))


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
    os._exit(1)
