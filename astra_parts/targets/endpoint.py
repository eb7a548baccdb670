"""An OpenAI-compatible server as target: vLLM, llama.cpp, TGI, Ollama, LM Studio, hosted ones.

It is refused before a socket opens unless its host is this machine or authorised. The key comes
from the environment or a file and is in no digest, log or error.
"""

import json
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import httpx
from pydantic import Field, model_validator

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation
from astra_core.errors import ChangedTargetError, ConfigurationError
from astra_core.files import record_digest
from astra_core.paths import found_at, is_file, kind_of
from astra_core.target import Outcome, Surroundings
from astra_parts.targets import wire
from astra_parts.targets.authorization import Authorization, check_address
from astra_parts.targets.calls import CallError, CallOptions, Calls, Question, about_tokens
from astra_parts.targets.kept import Kept
from astra_parts.targets.outcomes import CalledTarget, asked_for_each
from astra_parts.targets.timed_client import Fetched, TimedClient

_LOG = logging.getLogger(__name__)
_LONGEST_KEY = 1 << 16  # characters
_ASKED = (
    "base_url",
    "model",
    "api",
    "system_prompt",
    "seed",
    "separator",
    "send_seed",
    "extra",
    "thinking",
)


class Endpoint(CalledTarget):
    """A model behind HTTP, which answers one request per reply.

    Args:
        options: The server, the requests, and how they are made.
        surroundings: Not used.
        subject: Its name in an error.
        place: The place of its options in params.yaml.
    """

    class Options(CallOptions):
        """The server, the requests, and how they are made."""

        base_url: str = Field(description="As http://127.0.0.1:8000/v1.")
        model: str = Field(min_length=1, description="The server's name of the model.")
        api: Literal["chat", "completions"] = "chat"
        name: str | None = Field(
            default=None,
            description="Used in digests instead of base_url, if a model's address may change.",
        )
        system_prompt: str | None = None
        seed: Literal["hidden", "opening"] = Field(
            default="hidden",
            description="The seed prompt: known to the attacker alone, or before the first probe.",
        )
        separator: str = Field(default="\n", description="Between turns; only for completions.")
        thinking: tuple[str, ...] = Field(
            default=("<think>", "</think>"), description="Tags of reasoning in a text; [] is none."
        )
        key_env: str | None = Field(default=None, description="Variable that holds the key.")
        key_file: Path | None = Field(default=None, description="File that holds the key.")
        authorization: Authorization | None = None
        send_seed: bool = Field(default=True, description="A seed for each reply, as 'seed'.")
        max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
        extra: dict[str, Any] = Field(
            default_factory=dict, description="Further fields of every request's body."
        )
        on_change: Literal["stop", "warn"] = Field(
            default="stop", description="What to do when an answer names another model."
        )

        @model_validator(mode="after")
        def _may_be_asked(self) -> Self:
            check_address(self.base_url, self.authorization)
            # Nothing there is told where the key is read: another machine may have it.
            if self.key_file and kind_of(self.key_file) not in {"a file", "nothing there"}:
                msg = f"key_file must be a file, got {found_at(self.key_file)}"
                raise ValueError(msg)
            if self.key_env is not None and self.key_file is not None:
                msg = "key_env must be null where key_file is given"
                raise ValueError(msg)
            if len(self.thinking) not in {0, 2}:
                msg = "thinking must be two tags, what opens and what closes, or []"
                raise ValueError(msg)
            if self.budget.money is not None and self.prices is None:
                msg = "prices must be given where budget.money is"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(
        self,
        options: Options,
        *,
        surroundings: Surroundings,
        subject: str = "target 'endpoint'",
        place: str = "system.target.options",
    ) -> None:
        super().__init__(options, surroundings=surroundings)
        self._subject, self._place = subject, place
        asked = options.model_dump(mode="json", include={*_ASKED})
        asked["base_url"] = options.name or asked["base_url"].rstrip("/")
        self._digest = record_digest(["endpoint", asked])
        file = self._digest[:16]
        self._is_here = check_address(options.base_url, options.authorization)
        path = "chat/completions" if options.api == "chat" else "completions"
        self._url = f"{options.base_url.rstrip('/')}/{path}"
        self._key = key_of(options)
        self._client: TimedClient | None = None
        self._starting = threading.Lock()
        self.calls = Calls(subject, options, self._ask, file=file, place=place)
        self._seen = ""

    def digest(self) -> str:
        """A digest of the address, the model and its instructions, but not of key and limits."""
        return self._digest

    def respond(
        self,
        conversations: Sequence[Conversation],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        tokens_per_batch: int = 16384,
    ) -> list[Outcome]:
        """One outcome per conversation, in order; a failed call fails its conversation alone.

        Raises:
            BudgetError: The rest of the budget does not cover what must be asked.
            ChangedTargetError: The server answers with another model than before.
        """
        del tokens_per_batch
        questions = [
            [self._question(conversation, key, generation) for key in own]
            for conversation, own in zip(conversations, keys, strict=True)
        ]
        return asked_for_each(self.calls, questions)

    def spelled(self) -> str:
        """The model and its address."""
        return f"{self.options.model} at {self.options.name or self.options.base_url}"

    def close(self) -> None:
        """Closes connections and the file of replies; both open again when they are needed."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self.calls.replies.close()

    def _question(
        self, conversation: Conversation, key: bytes, generation: GenerationConfiguration
    ) -> Question:
        options = self.options
        opens = options.seed == "opening"
        messages = wire.said(conversation, system_prompt=options.system_prompt, opens=opens)
        body = {"model": options.model, **wire.sampling(generation), **options.extra}
        body[options.max_tokens_name] = generation.max_new_tokens
        if options.send_seed:
            body["seed"] = int.from_bytes(key[:4], "big") >> 1
        texts = [message["content"] for message in messages]
        if options.api == "chat":
            body["messages"] = messages
        else:
            body["prompt"] = options.separator.join(texts) + options.separator
        record = [self._digest, messages, generation.model_dump(mode="json"), key.hex()]
        tokens = sum(map(about_tokens, texts)) + generation.max_new_tokens
        return Question(record_digest(record), body, tokens)

    def _ask(self, question: Question) -> Kept:
        """The reply to one request.

        Raises:
            CallError: It gave no reply.
        """
        options = self.options
        fetched = self._posted(question)
        if fetched.is_cut:
            words = f"the answer is longer than {options.max_reply_bytes} bytes"
            raise CallError(kind="too_large", words=words, is_final=True)
        if fetched.status != httpx.codes.OK:
            raise wire.refused(fetched.status, fetched.headers, fetched.content)
        sent = str(question.body.get("messages") or question.body["prompt"])
        kept = wire.read(fetched.content, api=options.api, tags=options.thinking, prompt=sent)
        self._check_model(kept.model)
        return kept

    def _posted(self, question: Question) -> Fetched:
        """What comes back.

        Raises:
            CallError: Nothing did.
        """
        options = self.options
        try:
            return self._connected().fetch(
                "POST",
                self._url,
                limit_s=options.timeout_s,
                most=options.max_reply_bytes,
                # A text may hold half of a surrogate pair, which has no UTF-8.
                content=json.dumps(question.body, ensure_ascii=False).encode("utf-8", "replace"),
                headers={"Idempotency-Key": question.key},
            )
        except TimeoutError as error:
            words = f"no answer within {options.timeout_s:g} s"
            raise CallError(kind="timeout", words=words) from error
        except httpx.DecodingError as error:
            raise CallError(kind="malformed", words=str(error)) from error
        except httpx.HTTPError as error:
            # By its kind, such as ConnectError: its words may be anything.
            name = type(error).__name__
            words = f"{options.base_url} cannot be reached or broke off ({name})"
            raise CallError(kind="down", words=words) from error

    def _connected(self) -> TimedClient:
        with self._starting:
            if self._client is None:
                count = self.options.concurrency
                headers = {"Content-Type": "application/json"}
                if self._key:
                    headers["Authorization"] = f"Bearer {self._key}"
                self._client = TimedClient(
                    headers=headers,
                    limits=httpx.Limits(max_connections=count, max_keepalive_connections=count),
                    # Reading the certificates takes a while.
                    verify=self._url.startswith("https"),
                    # A proxy of the environment would see what is meant for this machine alone.
                    trust_env=not self._is_here,
                )
            return self._client

    def _check_model(self, model: str) -> None:
        """Checks that an answer names the model that the first one named.

        Raises:
            ChangedTargetError: It names another, and ``on_change`` is ``stop``.
        """
        if not model or model == self._seen:
            return
        before = self.calls.replies.model_before(self._digest, model)
        if model != before:
            if self.options.on_change == "stop":
                msg = (
                    f"{self._subject} must stay one model, got '{model}' after '{before}'; "
                    f"give {self._place}.name a new value to start over with it, or set "
                    "on_change: warn"
                )
                raise ChangedTargetError(msg)
            _LOG.warning("%s was %s and is now %s", self._subject, before, model)
            self.calls.replies.model_before(self._digest, model, is_new=True)
        self._seen = model


def key_of(options: Endpoint.Options) -> str:
    """The key; empty if none is named.

    Raises:
        ConfigurationError: There is no key in the named place.
    """
    if options.key_env is not None:
        place, key = f"variable {options.key_env}", os.environ.get(options.key_env, "").strip()
    elif options.key_file is not None:
        place = f"file {options.key_file}"
        key = _read_key(options.key_file)
    else:
        return ""
    if not key or not key.isascii() or not key.isprintable():
        found = "nothing there" if not key else "something with other characters"
        if options.key_file is not None and not is_file(options.key_file):
            found = kind_of(options.key_file)
        msg = f"{place} must hold the endpoint's key on one line, got {found}; put it there"
        raise ConfigurationError(msg)
    return key


def _read_key(path: Path) -> str:
    """The text of a file; empty where there is no file, such as a pipe that nobody writes to."""
    if not is_file(path):
        return ""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(_LONGEST_KEY).strip()
    except (OSError, ValueError):
        return ""
