"""What every answer of our OpenAI-compatible servers has in common: errors, token, request bodies.

An error is ``{"error": {message, type, param, code}}`` with a status of 4xx, as clients of that
interface expect. What a server does not offer is refused, never ignored.
"""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from astra_parts.bodies import MOST_JSON

_IDLE_S = 30.0
_KINDS = {401: "authentication_error", 404: "invalid_request_error", 409: "conflict_error"}


class Body(BaseModel):
    """The body of a request; a key that is not declared is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Asked = TypeVar("Asked", bound=Body)


class RefusalError(Exception):
    """A request that is refused."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code

    def response(self) -> JSONResponse:
        """The HTTP answer with this error."""
        kind = _KINDS.get(self.status, "invalid_request_error")
        kind = "server_error" if self.status >= 500 else kind
        told = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return JSONResponse({"error": told}, status_code=self.status)


async def body_of(request: Request, kind: type[Asked]) -> Asked:
    """The body of a request, checked.

    Raises RefusalError if it is not a JSON object, or a key or value in it is not offered.
    """
    try:
        record = json.loads(await request.body())
        # Half of a character, such as \\ud83d, is no text that a tokenizer or an answer can hold.
        json.dumps(record, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        message = "the body must be a JSON object of whole characters, got something else"
        raise RefusalError(message) from None
    return read_body(record, kind)


def read_body(record: Any, kind: type[Asked]) -> Asked:
    """The body in a record, checked. Raises RefusalError as ``body_of`` does."""
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        raise _refusal_of(error) from None


def _refusal_of(error: ValidationError) -> RefusalError:
    """The first problem, without the value, which may be part of an attack."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        message = f"Unrecognized request argument supplied: {place}"
        return RefusalError(message, param=place, code="unknown_parameter")
    message = f"Invalid value for '{place}': {first['msg']}" if place else str(first["msg"])
    return RefusalError(message, param=place or None, code="invalid_value")


def make_app(title: str, *, token: str | None) -> FastAPI:
    """An application that answers errors in the interface's form and requires the token.

    A body may have ``MOST_JSON`` bytes, or what ``state.longer`` has for its path.

    ``token``: every request must have it as ``Authorization: Bearer``; None requires none.
    """
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(RefusalError, _refuse)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _http_error)
    app.state.longer = {}
    app.add_middleware(ArrivalLimits, longer=app.state.longer)

    @app.middleware("http")
    async def ask_for_token(
        request: Request, go_on: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token is None or hmac.compare_digest(given.encode(), token.encode()):
            return await go_on(request)
        message = "the request must bring this server's token as 'Authorization: Bearer TOKEN'"
        return RefusalError(message, status=401, code="invalid_api_key").response()

    return app


class ArrivalLimits:
    """Refuses a body that is too long, or of which no part arrives for a while.

    Args:
        most: Bytes of a body.
        longer: Bytes of a body by path, where they may be more.
        idle_s: Seconds from one part of a body to the next.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        most: int = MOST_JSON,
        longer: dict[str, int] | None = None,
        idle_s: float = _IDLE_S,
    ) -> None:
        self._app = app
        self._most = most
        self._longer = longer or {}
        self._idle_s = idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on; its body is refused where it is read."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._longer.get(scope["path"], self._most)
        told = Headers(scope=scope).get("content-length", "0")
        if told.isdecimal() and int(told[:19]) > most:
            await _too_long(most).response()(scope, receive, send)
            return
        await self._app(scope, self._limit(receive, most), send)

    def _limit(self, receive: Receive, most: int) -> Receive:
        taken, is_whole = 0, False

        async def part() -> Message:
            nonlocal taken, is_whole
            if is_whole:  # what comes next is that the client leaves
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), self._idle_s)
            except TimeoutError:
                words = f"the body must arrive within {self._idle_s:g} s, got a part of it"
                raise RefusalError(words, status=408, code="request_timeout") from None
            taken += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if taken > most:
                raise _too_long(most)
            return message

        return part


def _too_long(most: int) -> RefusalError:
    words = f"the body must be at most {most} bytes, got more"
    return RefusalError(words, status=413, code="request_too_large")


def _refuse(_request: Request, error: Exception) -> Response:
    return error.response() if isinstance(error, RefusalError) else Response(status_code=500)


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 400
    message = f"Unknown request URL: {request.method} {request.url.path}"
    if status != 404:
        message = f"the request cannot be served: {request.method} {request.url.path}"
    return RefusalError(message, status=status).response()
