"""A sink records the figures of a run while it trains: in a file, on a page, with a service."""

import json
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from astra_core.config import Section
from astra_core.extensions.calls import is_number
from astra_core.extensions.plugin_class import Plugin

Status = Literal["FINISHED", "FAILED", "KILLED"]
"""How a run ended."""

_LEDGER = "written.jsonl"


@dataclass(frozen=True, slots=True)
class SinkRun:
    """The run whose figures a sink records.

    ``key``: the run's name; the same for every try of it.
    """

    key: str
    folder: Path
    params: Mapping[str, Any]


class Sink(Plugin):
    """Records figures named ``area/name`` by optimiser step.

    Its failure never ends a run. It gets each figure of each step once, also in a resumed run,
    because its ``recorded_figures`` are left out.
    """

    def __init__(self, options: Section | None = None, *, run: SinkRun) -> None:
        super().__init__(options)
        self.run = run

    @classmethod
    def check(cls) -> None:
        """Checks that it can be used on this machine; called before any weights are loaded."""
        return

    @abstractmethod
    def write(self, figures: Mapping[str, float], step: int) -> None:
        """Records finite figures of one step; there may be further ones of the same step later."""

    def recorded_figures(self) -> Iterable[tuple[str, int]] | None:
        """Name and step of every figure recorded so far, by an earlier try of the run.

        None if it does not know. Then figures are noted in its folder before they are written: a
        kill in between loses a step, but none is recorded twice.
        """
        return None

    def finish(self, status: Status) -> None:
        """Ends the record; the run may still be tried again."""


class Recorder:
    """Gives a sink the finite figures of each step, each once."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        known = sink.recorded_figures()
        self._ledger = sink.run.folder / _LEDGER if known is None else None
        self._seen = set(_read_ledger(sink.run.folder / _LEDGER) if known is None else known)

    def log_step(self, figures: Mapping[str, Any], step: int) -> None:
        """Passes on new figures of one step, but no counters, which have no area in their name."""
        new = {
            name: float(value)
            for name, value in figures.items()
            if "/" in name and is_number(value) and math.isfinite(float(value))
            if (name, step) not in self._seen
        }
        if not new:
            return
        self._seen |= {(name, step) for name in new}
        if self._ledger is not None:
            self._ledger.parent.mkdir(parents=True, exist_ok=True)
            with self._ledger.open("a", encoding="utf-8") as file:
                file.write(json.dumps([step, sorted(new)]) + "\n")
        self._sink.write(new, step)

    def finish(self, status: Status = "FINISHED") -> None:
        """Ends the record."""
        self._sink.finish(status)


def _read_ledger(ledger: Path) -> Iterator[tuple[str, int]]:
    """The figures in a ledger, whose last line may have been cut by a kill."""
    if not ledger.exists():
        return
    for line in ledger.read_text(encoding="utf-8").splitlines():
        with suppress(json.JSONDecodeError):
            step, names = json.loads(line)
            yield from ((name, step) for name in names)
