"""The inference part of the OpenAI interface: models, completions and chat completions.

It offers several choices, temperature and truncation, stop texts, a seed per request and
log-probabilities. A request for anything else, such as tools, is refused.
"""

import json
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import Field

from astra_core.errors import ConfigurationError
from astra_core.settings.sizes import MOST_NEW_TOKENS
from tasks.serving.talking import SampledText, ServedModel, Wanted
from tasks.serving.wire import Body, RefusalError, body_of

_KEPT = 4
_LONGEST_ANSWER = 512
_MARKS = {"chat.completion": "chatcmpl", "text_completion": "cmpl"}
Folders = Callable[[], Mapping[str, Path]]


class ChatMessage(Body):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str
    name: str | None = None


class _Plain(Body):
    type: Literal["text"] = "text"


class Sampling(Body):
    """The sampling settings of both kinds of request."""

    model: str
    temperature: float = Field(1.0, ge=0.0, le=2.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    n: int = Field(1, ge=1, le=128)
    seed: int | None = None
    stop: str | Annotated[list[str], Field(max_length=4)] | None = None
    stream: bool | None = None
    presence_penalty: Literal[0, 0.0] | None = None  # type: ignore[valid-type]
    frequency_penalty: Literal[0, 0.0] | None = None  # type: ignore[valid-type]
    user: str | None = None
    # Many servers have them, though OpenAI does not; Astra's own target sends them too.
    top_k: int = Field(0, ge=0)
    min_p: float = Field(0.0, ge=0.0, le=1.0)
    repetition_penalty: float = Field(1.0, gt=0.0)
    min_tokens: int = Field(1, ge=0)

    def config(self, most: int, *, top: int) -> Wanted:
        """The settings as the core reads them; temperature 0 takes the likeliest token."""
        from astra_core.config import GenerationConfiguration

        is_greedy = self.temperature == 0.0
        generation = GenerationConfiguration(
            max_new_tokens=most,
            min_new_tokens=self.min_tokens,
            temperature=1.0 if is_greedy else self.temperature,
            top_k=1 if is_greedy else self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
        )
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return Wanted(generation, self.n, self.seed, tuple(filter(None, stop)), top)


class ChatBody(Sampling):
    """The body of ``/v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: int | None = Field(None, ge=1, le=MOST_NEW_TOKENS)
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_NEW_TOKENS)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: _Plain | None = None


class TextBody(Sampling):
    """The body of ``/v1/completions``."""

    prompt: str | Annotated[list[str], Field(max_length=256)]
    max_tokens: int | None = Field(16, ge=1, le=MOST_NEW_TOKENS)
    logprobs: int | None = Field(None, ge=0, le=5)


class Speakers:
    """The models of a server by name, loaded when they are first asked for.

    Args:
        folders: Gives the folder of each name.
        separator: Text between turns, for a model without a chat template.
        are_attackers: Whether chats are read as an attacker does, see ``talking.conversation_of``.
    """

    def __init__(
        self, folders: Folders, *, separator: str | None = None, are_attackers: bool = False
    ) -> None:
        self.folders = folders
        self._load = partial(ServedModel.load, separator=separator, is_attacker=are_attackers)
        self._loaded: OrderedDict[Path, ServedModel] = OrderedDict()
        self._lock = threading.Lock()

    def folder(self, name: str) -> Path:
        """The folder of a model. Raises RefusalError if there is no model of this name."""
        folder = self.folders().get(name)
        if folder is None:
            msg = f"The model '{name}' does not exist"
            raise RefusalError(msg, status=404, param="model", code="model_not_found")
        return folder

    def speaker(self, name: str) -> ServedModel:
        """The model of this name. Raises RefusalError if there is none, or it cannot be loaded."""
        folder = self.folder(name)
        with self._lock:
            if folder not in self._loaded:
                try:
                    self._loaded[folder] = self._load(folder)
                except ConfigurationError as error:
                    msg = f"The model '{name}' cannot be served: {error}"
                    raise RefusalError(msg, status=503, param="model") from None
                if len(self._loaded) > _KEPT:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(folder)
            return self._loaded[folder]


def add_inference(app: FastAPI, speakers: Speakers) -> None:
    """Adds the routes."""

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(name) for name in speakers.folders()]}

    @app.get("/v1/models/{name:path}")
    def model(name: str) -> dict[str, Any]:
        speakers.folder(name)
        return _model(name)

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = await body_of(request, ChatBody)
        record = await run_in_threadpool(_chat, speakers, body)
        return _response(record, body)

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        body = await body_of(request, TextBody)
        record = await run_in_threadpool(_complete, speakers, body)
        return _response(record, body)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "astra"}


def _chat(speakers: Speakers, body: ChatBody) -> dict[str, Any]:
    speaker = speakers.speaker(body.model)
    if body.top_logprobs is not None and not body.logprobs:
        msg = "top_logprobs must come with logprobs: true"
        raise RefusalError(msg, param="top_logprobs", code="invalid_value")
    context = speaker.heard([{"role": own.role, "content": own.content} for own in body.messages])
    most = body.max_completion_tokens or body.max_tokens or _most(speaker, context)
    found = speaker.choices(context, body.config(most, top=body.top_logprobs or 0))
    choices = [
        {
            "index": number,
            "message": {"role": "assistant", "content": own.text, "refusal": None},
            "logprobs": {"content": _content(own), "refusal": None} if body.logprobs else None,
            "finish_reason": own.finish,
        }
        for number, own in enumerate(found)
    ]
    usage = _usage(len(context), found)
    return _answer("chat.completion", body.model, speaker, choices=choices, usage=usage)


def _complete(speakers: Speakers, body: TextBody) -> dict[str, Any]:
    speaker = speakers.speaker(body.model)
    choices: list[dict[str, Any]] = []
    read, every = 0, []
    for prompt in [body.prompt] if isinstance(body.prompt, str) else body.prompt:
        context = speaker.text_ids(prompt)
        found = speaker.choices(
            context, body.config(body.max_tokens or _most(speaker, context), top=body.logprobs or 0)
        )
        for own in found:
            told = None if body.logprobs is None else _flat(own)
            choice = {"index": len(choices), "text": own.text, "logprobs": told}
            choices.append({**choice, "finish_reason": own.finish})
        read += len(context)
        every += found
    usage = _usage(read, every)
    return _answer("text_completion", body.model, speaker, choices=choices, usage=usage)


def _most(speaker: ServedModel, context: Sequence[int]) -> int:
    return max(1, min(_LONGEST_ANSWER, speaker.room(context)))


def _answer(kind: str, model: str, speaker: ServedModel, **parts: Any) -> dict[str, Any]:
    return {
        "id": f"{_MARKS[kind]}-{secrets.token_hex(12)}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": speaker.fingerprint,
        **parts,
    }


def _usage(read: int, found: Sequence[SampledText]) -> dict[str, int]:
    written = sum(len(own.tokens) for own in found)
    total = read + written
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": total}


def _content(own: SampledText) -> list[dict[str, Any]]:
    """Log-probabilities in the form of a chat completion."""
    tops = own.top or ((),) * len(own.tokens)
    return [
        {**_token(text, value), "top_logprobs": [_token(*each) for each in top]}
        for text, value, top in zip(own.tokens, own.logprobs, tops, strict=True)
    ]


def _token(text: str, value: float) -> dict[str, Any]:
    return {"token": text, "logprob": value, "bytes": list(text.encode())}


def _flat(own: SampledText) -> dict[str, Any]:
    """Log-probabilities in the form of a completion."""
    starts = [sum(map(len, own.tokens[:place])) for place in range(len(own.tokens))]
    return {
        "tokens": list(own.tokens),
        "token_logprobs": list(own.logprobs),
        "top_logprobs": [dict(top) for top in own.top] or None,
        "text_offset": starts,
    }


def _response(record: dict[str, Any], body: Sampling) -> Response:
    if body.stream:
        return StreamingResponse(_events(record), media_type="text/event-stream")
    return JSONResponse(record)


def _events(record: dict[str, Any]) -> Iterator[str]:
    """The answer as a stream: each choice in one piece, then its end."""
    is_chat = record["object"] == "chat.completion"
    named = {key: value for key, value in record.items() if key not in {"choices", "usage"}}
    named["object"] = "chat.completion.chunk" if is_chat else "text_completion"
    for choice in record["choices"]:
        own = dict(choice)
        if is_chat:
            message = own.pop("message")
            own["delta"] = {"role": message["role"], "content": message["content"]}
        yield f"data: {json.dumps({**named, 'choices': [own]})}\n\n"
    yield "data: [DONE]\n\n"
