"""An OpenAI-compatible server as target: vLLM, llama.cpp, TGI, Ollama, LM Studio, hosted ones."""

import logging
from functools import partial
from typing import Any, Literal, Self

import httpx
from pydantic import Field, model_validator

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation
from astra_core.errors import ChangedTargetError
from astra_core.files import record_digest
from astra_core.target import Surroundings
from astra_parts.targets import wire
from astra_parts.targets.calls import Calls, Question, about_tokens
from astra_parts.targets.kept import Kept
from astra_parts.targets.outcomes import Asker, CalledTarget
from astra_parts.targets.server import Server, ServerOptions

_LOG = logging.getLogger(__name__)
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

    class Options(ServerOptions):
        """The server, the requests, and how they are made."""

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
        send_seed: bool = Field(default=True, description="A seed for each reply, as 'seed'.")
        max_tokens_name: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
        extra: dict[str, Any] = Field(
            default_factory=dict, description="Further fields of every request's body."
        )
        on_change: Literal["stop", "warn"] = Field(
            default="stop", description="What to do when an answer names another model."
        )

        @model_validator(mode="after")
        def _tags_are_two(self) -> Self:
            if len(self.thinking) not in {0, 2}:
                msg = "thinking must be two tags, what opens and what closes, or []"
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
        self._path = "chat/completions" if options.api == "chat" else "completions"
        self._server = Server(options)
        self.calls = Calls(subject, options, self._ask, file=file, place=place)
        self._seen = ""

    def digest(self) -> str:
        """A digest of the address, the model and its instructions, but not of key and limits."""
        return self._digest

    def asker(self, generation: GenerationConfiguration) -> Asker:
        """See ``CalledTarget.asker``."""
        return partial(self._question, generation)

    def spelled(self) -> str:
        """The model and its address."""
        return f"{self.options.model} at {self.options.name or self.options.base_url}"

    def close(self) -> None:
        """Closes connections and the file of replies; both open again when they are needed."""
        self._server.close()
        self.calls.replies.close()

    def _question(
        self, generation: GenerationConfiguration, conversation: Conversation, key: bytes
    ) -> Question:
        options = self.options
        opens = options.seed == "opening"
        messages = wire.messages_of(conversation, system_prompt=options.system_prompt, opens=opens)
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
        """The reply to one request. Raises CallError if it gave none."""
        options = self.options
        fetched = self._server.fetch(self._path, question.body, key=question.key)
        sent = str(question.body.get("messages") or question.body["prompt"])
        if fetched.status != httpx.codes.OK:
            raise wire.call_error(fetched.status, fetched.headers, fetched.content, sent=sent)
        kept = wire.read(fetched.content, api=options.api, tags=options.thinking, prompt=sent)
        self._check_model(kept.model)
        return kept

    def _check_model(self, model: str) -> None:
        """Checks that an answer names the model that the first one named.

        Raises ChangedTargetError if it names another, and ``on_change`` is ``stop``.
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
