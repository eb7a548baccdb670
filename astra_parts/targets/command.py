"""A program as target: for each line of JSON that it reads, it writes one.

It is for bots that are neither a model folder nor an endpoint. Replies are kept, counted and
limited like those of an endpoint.
"""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Literal

from pydantic import Field

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from astra_core.files import file_digest, record_digest
from astra_core.redaction import mask
from astra_core.target import Surroundings
from astra_parts.targets.calls import CallError, CallOptions, Calls, Question, about_tokens
from astra_parts.targets.kept import Kept
from astra_parts.targets.outcomes import Asker, CalledTarget
from astra_parts.targets.wire import messages_of, token_count

_FINISHES = {"stop", "length", "filter"}


class Command(CalledTarget):
    """A program that is started once per worker and gets one line at a time."""

    class Options(CallOptions):
        """The program, its input, and how it is called."""

        program: tuple[str, ...] = Field(min_length=1, description="The program and its arguments.")
        version: str = Field("1", description="A new value asks everything again.")
        system_prompt: str | None = None
        seed: Literal["hidden", "opening"] = "hidden"

    options: Options

    def __init__(self, options: Options, *, surroundings: Surroundings) -> None:
        super().__init__(options, surroundings=surroundings)
        self._idle: LifoQueue[_CommandProcess] = LifoQueue()
        self.calls = Calls("target 'command'", options, self._ask, file=self.digest()[:16])

    def digest(self) -> str:
        """A digest of the program, the files among its arguments and its input."""
        told = self.options.model_dump(
            mode="json", include={"program", "version", "system_prompt", "seed"}
        )
        files = {
            name: file_digest(Path(name)) for name in self.options.program if Path(name).is_file()
        }
        return record_digest(["command", told, files])

    def asker(self, generation: GenerationConfiguration) -> Asker:
        """See ``CalledTarget.asker``."""
        # Computed once: a program that is edited meanwhile counts as another from the next level.
        return partial(self._question, [self.digest(), generation.model_dump(mode="json")])

    def spelled(self) -> str:
        """The program."""
        return f"program {self.options.program[0]}"

    def close(self) -> None:
        """Ends the processes and closes the file of replies."""
        self.calls.replies.close()
        with suppress(Empty):
            while True:
                self._idle.get_nowait().end()

    def _question(self, told: list[Any], conversation: Conversation, key: bytes) -> Question:
        options, sampling = self.options, told[1]
        opens = options.seed == "opening"
        messages = messages_of(conversation, system_prompt=options.system_prompt, opens=opens)
        body = {"messages": messages, "seed": int.from_bytes(key[:4], "big") >> 1, **sampling}
        texts = [message["content"] for message in messages]
        tokens = sum(map(about_tokens, texts)) + sampling["max_new_tokens"]
        return Question(record_digest([*told, messages, key.hex()]), body, tokens)

    def _ask(self, question: Question) -> Kept:
        """The reply of an idle program, or of a new one, to one line; one that fails is ended."""
        try:
            worker = self._idle.get_nowait()
        except Empty:
            worker = _CommandProcess(self.options)
        try:
            line = worker.answer(json.dumps(question.body).encode() + b"\n")
        except BaseException:
            worker.end()
            raise
        self._idle.put(worker)
        return _read(line, question.body)


class _CommandProcess:
    """One process of the program."""

    def __init__(self, options: Command.Options) -> None:
        self._options = options
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the user's own program
                options.program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # It may quote what it was asked.
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            msg = (
                f"target 'command' must name a program that starts, got {excerpt(str(error))}; "
                "see system.target.options.program"
            )
            raise ConfigurationError(msg) from error

    def answer(self, line: bytes) -> bytes:
        """The program's answer to a line.

        Raises CallError if the program ended, took too long or wrote too much.
        """
        end = time.monotonic() + self._options.timeout_s
        assert self._process.stdin is not None  # noqa: S101  # for mypy: it is a pipe
        try:
            self._process.stdin.write(line)
        except OSError as error:
            raise CallError(kind="down", words="the program has ended") from error
        found = bytearray()
        with selectors.DefaultSelector() as selector:
            output = self._process.stdout
            assert output is not None  # noqa: S101  # for mypy: it is a pipe
            selector.register(output, selectors.EVENT_READ)
            while not found.endswith(b"\n"):
                if not selector.select(max(0.0, end - time.monotonic())):
                    words = f"no answer within {self._options.timeout_s:g} s (timeout_s)"
                    raise CallError(kind="timeout", words=words)
                part = os.read(output.fileno(), 1 << 16)
                if not part:
                    raise CallError(kind="down", words="the program has ended")
                found += part
                if len(found) > self._options.max_reply_bytes:
                    words = f"the answer is longer than {self._options.max_reply_bytes} bytes"
                    raise CallError(kind="too_large", words=words, is_final=True)
        return bytes(found)

    def end(self) -> None:
        """Ends the process and those that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


def _read(line: bytes, body: Mapping[str, Any]) -> Kept:
    """The reply in a line. Raises CallError if there is none."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CallError(kind="malformed", words="the answer is no line of JSON") from error
    if not isinstance(told, dict):
        raise CallError(kind="malformed", words="the answer is no JSON object")
    if told.get("error"):
        words = f"the program reports {excerpt(mask(str(told['error'])[:400]))}"
        raise CallError(kind="server", words=words)
    text = told.get("text")
    if not isinstance(text, str):
        raise CallError(kind="empty", words="the answer has no text")
    finish = told.get("finish_reason")
    asked = json.dumps(body["messages"])
    return Kept(
        text,
        str(told.get("thinking") or ""),
        finish if finish in _FINISHES else "stop",
        token_count(told.get("tokens_in"), asked),
        token_count(told.get("tokens_out"), text),
    )
