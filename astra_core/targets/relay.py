"""A process of its own that makes the calls, so that a run which is killed loses no paid reply.

It is in no group of the run. It begins nothing after the run's end, but receives what is under way
and leaves it in the file of replies; it ends then, within the limit of one call.
"""

import json
import subprocess
import sys
import threading
import weakref
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from astra_core.targets.posting import Answered, Server, UnansweredError
from astra_core.targets.under_way import Owner

_GRACE_S = 30.0  # the process keeps to the limit of a call by itself


class Relay:
    """Requests by another process; starts it when it is first needed, and again if it was ended.

    Args:
        server: Where and how.
        database: The file of kept replies.
        owner: Whose calls they are.
    """

    def __init__(self, server: Server, database: Path, owner: Owner) -> None:
        self._server, self._owner = server, owner
        whose = {"database": str(database.absolute()), "owner": owner.name}
        self._first = {"server": asdict(server), **whose}
        self._lock = threading.Lock()
        self._running: _Running | None = None

    def post(self, key: str, body: str) -> Answered:
        """The answer to one request, as ``Posting.post``.

        Raises:
            UnansweredError: Nothing came back, or too much.
        """
        with self._lock:
            if self._running is None or self._running.has_ended:
                self._running = _Running(self._first, self._owner)
            future = self._running.ask(key, body)
        try:
            return future.result(self._server.timeout_s + _GRACE_S)
        except TimeoutError as error:
            words = f"no answer within {self._server.timeout_s:g} s"
            raise UnansweredError(kind="timeout", words=words) from error

    def kept(self, key: str) -> None:
        """Says that an answer needs to be remembered no more."""
        with self._lock:
            if self._running is not None:
                self._running.tell({"kept": key})

    def close(self) -> None:
        """Ends the process once it has finished."""
        with self._lock:
            if self._running is not None:
                self._running.close()
                self._running = None


class _Running:
    """The process, as long as it runs."""

    def __init__(self, first: dict[str, Any], owner: Owner) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "astra_core.targets.relay_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # It may say what it was asked.
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            pass_fds=(owner.lock,),
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101  # for mypy: they are pipes
        assert process.stdout is not None  # noqa: S101
        self._input: IO[str] = process.stdin
        self._waiting = _Waiting()
        reading = (process.stdout, self._waiting)
        reader = threading.Thread(target=_read, args=reading, daemon=True)
        self.close = weakref.finalize(self, _end, process, reader)
        self.tell(first)
        # Its start is no part of the time that a call may take.
        process.stdout.readline()
        reader.start()

    @property
    def has_ended(self) -> bool:
        """True where it can be asked nothing more."""
        return self._waiting.has_ended

    def ask(self, key: str, body: str) -> "Future[Answered]":
        """What will be answered."""
        future = self._waiting.add(key)
        self.tell({"key": key, "body": body})
        return future

    def tell(self, line: dict[str, Any]) -> None:
        """Writes a line, if the process is there to read it."""
        with suppress(BrokenPipeError):  # who waits hears of it from the reader
            self._input.write(f"{json.dumps(line)}\n")
            self._input.flush()


class _Waiting:
    """What is waited for, by key."""

    def __init__(self) -> None:
        self.has_ended = False
        self._lock = threading.Lock()
        self._futures: dict[str, Future[Answered]] = {}

    def add(self, key: str) -> "Future[Answered]":
        """One more."""
        future: Future[Answered] = Future()
        with self._lock:
            self._futures[key] = future
        if self.has_ended:
            self.end()
        return future

    def take(self, key: str) -> "Future[Answered] | None":
        """One less."""
        with self._lock:
            return self._futures.pop(key, None)

    def end(self) -> None:
        """Nothing more will come."""
        self.has_ended = True
        with self._lock:
            left, self._futures = self._futures, {}
        for future in left.values():
            words = "the process that makes the calls has ended"
            future.set_exception(UnansweredError(kind="down", words=words))


def _read(output: IO[str], waiting: _Waiting) -> None:
    """Gives each answer to who waits for it, until there are no more."""
    for line in output:
        told = json.loads(line)
        future = waiting.take(told["key"])
        if future is None:
            continue
        if "answer" in told:
            future.set_result(Answered.read(told["answer"]))
        else:
            kind, words, is_final = told["error"]
            future.set_exception(UnansweredError(kind=kind, words=words, is_final=is_final))
    waiting.end()


def _end(process: "subprocess.Popen[str]", reader: threading.Thread) -> None:
    assert process.stdin is not None  # noqa: S101  # for mypy: they are pipes
    assert process.stdout is not None  # noqa: S101
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.wait()
    reader.join()
    process.stdout.close()
