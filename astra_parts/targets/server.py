"""A server over HTTP that is asked one request at a time, by as many threads as its options say.

It is refused before a socket opens unless its host is this machine or authorised. The key comes
from the environment or a file and is in no digest, log or error.
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
from pydantic import Field, model_validator

from astra_core.errors import ConfigurationError
from astra_core.paths import found_at, is_file, kind_of
from astra_parts.targets.authorization import Authorization, check_address
from astra_parts.targets.calls import CallError, CallOptions
from astra_parts.targets.timed_client import Fetched, TimedClient

_LONGEST_KEY = 1 << 16  # characters


class ServerOptions(CallOptions):
    """Where the server is, its key, and how it is called."""

    subject: ClassVar[str] = "endpoint"
    base_url: str = Field(description="As http://127.0.0.1:8000/v1.")
    key_env: str | None = Field(default=None, description="Variable that holds the key.")
    key_file: Path | None = Field(default=None, description="File that holds the key.")
    authorization: Authorization | None = None

    @model_validator(mode="after")
    def _may_be_asked(self) -> Self:
        check_address(self.base_url, self.authorization, subject=f"{self.subject}: base_url")
        # Nothing there is told where the key is read: another machine may have it.
        if self.key_file and kind_of(self.key_file) not in {"a file", "nothing there"}:
            msg = f"key_file must be a file, got {found_at(self.key_file)}"
            raise ValueError(msg)
        if self.key_env is not None and self.key_file is not None:
            msg = "key_env must be null where key_file is given"
            raise ValueError(msg)
        if self.budget.money is not None and self.prices is None:
            msg = "prices must be given where budget.money is"
            raise ValueError(msg)
        return self


class Server:
    """The server; its connections open with the first request.

    ``options``: where it is, and how it is called.

    Raises ConfigurationError if there is no key in the place that the options name.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._is_here = check_address(options.base_url, options.authorization)
        self._key = key_of(options)
        self._client: TimedClient | None = None
        self._starting = threading.Lock()

    def fetch(
        self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None
    ) -> Fetched:
        """What comes back, whatever its status.

        Args:
            path: Below ``base_url``.
            body: What is posted, as JSON; None gets.
            key: The same for equal requests.

        Raises CallError if nothing comes back, or more than may.
        """
        options = self._options
        sent: dict[str, Any] = {}
        if body is not None:
            # A text may hold half of a surrogate pair, which has no UTF-8.
            text = json.dumps(body, ensure_ascii=False)
            sent["content"] = text.encode("utf-8", "replace")
        if key is not None:
            sent["headers"] = {"Idempotency-Key": key}
        try:
            fetched = self._connect().fetch(
                "GET" if body is None else "POST",
                f"{options.base_url.rstrip('/')}/{path}",
                limit_s=options.timeout_s,
                most=options.max_reply_bytes,
                **sent,
            )
        except TimeoutError as error:
            words = f"no answer within {options.timeout_s:g} s (timeout_s, concurrency)"
            raise CallError(kind="timeout", words=words) from error
        except httpx.DecodingError as error:
            raise CallError(kind="malformed", words=str(error)) from error
        except httpx.HTTPError as error:
            # By its kind, such as ConnectError: its words may be anything.
            name = type(error).__name__
            words = f"{options.base_url} cannot be reached or broke off ({name})"
            raise CallError(kind="down", words=words) from error
        if fetched.is_cut:
            words = f"the answer is longer than {options.max_reply_bytes} bytes"
            raise CallError(kind="too_large", words=words, is_final=True)
        return fetched

    def close(self) -> None:
        """Closes the connections; they open again when they are needed."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connect(self) -> TimedClient:
        with self._starting:
            if self._client is None:
                count = self._options.concurrency
                headers = {"Content-Type": "application/json"}
                if self._key:
                    headers["Authorization"] = f"Bearer {self._key}"
                self._client = TimedClient(
                    headers=headers,
                    limits=httpx.Limits(max_connections=count, max_keepalive_connections=count),
                    # Reading the certificates takes a while.
                    verify=self._options.base_url.startswith("https"),
                    # A proxy of the environment would see what is meant for this machine alone.
                    trust_env=not self._is_here,
                )
            return self._client


def key_of(options: ServerOptions) -> str:
    """The key; empty if none is named.

    Raises ConfigurationError if there is no key in the named place.
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
