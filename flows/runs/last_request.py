"""The last run's request, kept until the run is done: ``astra resume`` repeats it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from astra_core.errors import ConfigurationError, DataError
from astra_core.files import write_json
from flows.runs.requests import RunRequest
from tasks.records.reports import read_record

FILE = Path(".astra/request.json")


@dataclass(frozen=True, slots=True)
class _Kept:
    only: str | None
    start: str | None
    end: str | None


@contextmanager
def noted(request: RunRequest) -> Iterator[None]:
    """A context for a run, whose request is kept until it is done."""
    note_request(request)
    yield
    forget_request()


def note_request(request: RunRequest) -> None:
    """Keeps the request of a run that begins."""
    record = {
        "only": request.only,
        "start": request.start,
        "end": request.end,
    }
    write_json(record, FILE)


def forget_request() -> None:
    """Removes the request of a run that is done."""
    FILE.unlink(missing_ok=True)


def request_to_resume() -> RunRequest:
    """The request of a run that did not end, without ``force``, since finished stages are done.

    Raises:
        ConfigurationError: The last run ended, or none began.
    """
    if not FILE.is_file():
        msg = "astra resume must find a run that did not end, got none; start one with 'astra run'"
        raise ConfigurationError(msg)
    try:
        found = read_record(FILE, _Kept)
    except DataError:
        msg = f"{FILE} must hold the request of a run, got a damaged file; use 'astra run'"
        raise ConfigurationError(msg) from None
    return RunRequest(only=found.only, start=found.start, end=found.end)
