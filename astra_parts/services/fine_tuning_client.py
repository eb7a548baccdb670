"""A client of the fine-tuning interface: files and jobs, with retries where they are safe.

Reading requests are retried after a passing error. Creating ones are not: the caller first checks
whether the service has the object (``TrainerState.once``), by the key in metadata, suffix and file
name.
"""

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx

from astra_core.errors import TrainingError
from astra_core.errors.exception_text import shorten
from astra_core.redaction import mask
from astra_parts.bodies import MOST_JSON
from astra_parts.services.waiting import Seen
from astra_parts.targets.timed_client import Fetched, TimedClient

KEY = "idempotency_key"
_TRIES = 5
_PAGE = 100
_MOST_PAGES = 50
_WEIGHTS = "astra/weights"
# Bytes per second: a file that takes longer than this on its way is given up.
_SLOWEST = 1 << 17
_PASSES = {408, 409, 425, 429}
_POLICY = re.compile(
    r"moderat|polic(y|ies)|unsafe|safety|harmful|content[_ ]filter|blocked|not allowed",
    re.IGNORECASE,
)

_LATE = {"timed_out", "timeout"}
_TIME = re.compile(r"expired|timed?_?out|time_?limit", re.IGNORECASE)


class ServiceRefusal(TrainingError):  # noqa: N818 - an outcome, and an error where nobody waits
    """The service will not train on these data."""


class FineTuning:
    """One service.

    Args:
        base_url: Such as ``http://127.0.0.1:8001/v1``; its host was checked.
        key: Sent as a bearer token; empty for none.
        pause_s: The pause before a second try; it doubles.
        is_here: Whether it is this machine, so that no proxy is used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str = "",
        timeout_s: float = 60.0,
        pause_s: float = 1.0,
        is_here: bool = True,
    ) -> None:
        self._url = base_url.rstrip("/")
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = TimedClient(headers=headers, trust_env=not is_here)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def upload(self, content: bytes, name: str) -> dict[str, Any]:
        """The id of a new file with these lines."""
        files = {"file": (f"{name}.jsonl", content, "application/jsonl")}
        return self._ask("POST", "files", data={"purpose": "fine-tune"}, files=files)

    def find_file(self, name: str) -> dict[str, Any] | None:
        """The file that was uploaded under this name, if there is one."""
        listed = self._entries("files", {"purpose": "fine-tune"})
        return next((own for own in listed if own.get("filename") == f"{name}.jsonl"), None)

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The id of a new job."""
        return self._ask("POST", "fine_tuning/jobs", json=dict(body))

    def find_job(self, key: str) -> dict[str, Any] | None:
        """The job that has this key in its metadata, or else in its suffix."""
        for own in self._entries("fine_tuning/jobs", {}):
            suffix = own.get("user_provided_suffix") or own.get("suffix")
            if (own.get("metadata") or {}).get(KEY) == key or suffix == key:
                return own
        return None

    def look(self, job_id: str) -> Seen:
        """The status of a job; a failure may count as refused or as timed out, by its error."""
        job = self._ask("GET", f"fine_tuning/jobs/{job_id}", tries=_TRIES)
        error = job.get("error") or {}
        words = f"{error.get('code') or ''} {error.get('message') or ''}".strip()
        status = str(job.get("status"))
        if status == "failed" and _POLICY.search(words):
            status = "refused"
        # The job ended at the service's own limit, so there is nothing left to wait for.
        if status in _LATE or (status == "failed" and _TIME.search(str(error.get("code") or ""))):
            status = "expired"
        model = job.get("fine_tuned_model")
        if status == "succeeded" and not model:
            status, words = "failed", "the service names no model"
        return Seen(status, shorten(mask(words), limit=160), {"model": model})

    def weights(self, model: str, *, most: int) -> bytes | None:
        """The weights of a model as safetensors; None if the service does not give them.

        Raises TrainingError if they are longer, or the service breaks off.
        """
        try:
            fetched = self._fetch("GET", _WEIGHTS, size=most, most=most, params={"model": model})
        except (TimeoutError, httpx.HTTPError) as error:
            msg = f"trainer 'text': the weights of {model} must be given out, got {_words(error)}"
            raise TrainingError(msg) from error
        if fetched.status != httpx.codes.OK:
            return None
        if fetched.is_cut:
            msg = (
                f"trainer 'text': the weights of {model} must be given out, got an answer that is "
                f"longer than {most} bytes"
            )
            raise TrainingError(msg)
        return fetched.content

    def gives_weights(self, model: str) -> bool:
        """Whether ``weights`` would give them; reads no weights."""
        fetched = self._fetch("GET", _WEIGHTS, most=0, params={"model": model})
        return fetched.status == httpx.codes.OK

    def _entries(self, path: str, params: Mapping[str, str]) -> list[dict[str, Any]]:
        """All entries of a list, page by page."""
        found: list[dict[str, Any]] = []
        for _ in range(_MOST_PAGES):
            after = {"after": str(found[-1]["id"])} if found else {}
            own = {**params, "limit": str(_PAGE), **after}
            page = self._ask("GET", path, tries=_TRIES, params=own)
            data = page.get("data") or []
            found += data
            if not data or not page.get("has_more"):
                break
        return found

    def _ask(self, method: str, path: str, *, tries: int = 1, **parts: Any) -> dict[str, Any]:
        """The answer as a record."""
        size = sum(len(content) for _, content, _ in parts.get("files", {}).values())
        for number in range(tries):
            if number:
                time.sleep(self._pause_s * 2 ** (number - 1))
            try:
                fetched = self._fetch(method, path, size=size, **parts)
            except (TimeoutError, httpx.HTTPError) as error:
                words = _words(error)
                continue
            if fetched.is_cut:
                words = f"the answer is longer than {MOST_JSON} bytes"
                continue
            if fetched.status == httpx.codes.OK:
                return _record(fetched.content)
            words = _error_message(fetched.status, fetched.content)
            if fetched.status not in _PASSES and fetched.status < 500:
                break
        msg = f"trainer 'text': {method} {path} must be answered, got: {words}; try again later"
        raise TrainingError(msg)

    def _fetch(
        self, method: str, path: str, *, size: int = 0, most: int = MOST_JSON, **parts: Any
    ) -> Fetched:
        """An answer, within the time for so many bytes."""
        limit_s = self._timeout_s + size / _SLOWEST
        return self._client.fetch(
            method, f"{self._url}/{path}", limit_s=limit_s, most=most, **parts
        )


def _words(error: Exception) -> str:
    return f"it cannot be reached or broke off ({type(error).__name__})"


def _record(content: bytes) -> dict[str, Any]:
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        msg = "trainer 'text': the service must answer with a JSON object, got something else"
        raise TrainingError(msg)
    return record


def _error_message(status: int, content: bytes) -> str:
    """The service's error message, masked."""
    try:
        error = json.loads(content).get("error") or {}
        told = f"{error.get('code') or ''} {error.get('message') or ''}".strip()
    except (ValueError, AttributeError, RecursionError):
        told = ""
    words = f"status {status} {shorten(mask(told), limit=160)}".strip()
    if status in {400, 403, 422, 451} and _POLICY.search(told):
        raise ServiceRefusal(words)
    return words
