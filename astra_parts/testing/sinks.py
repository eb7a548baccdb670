"""The contract of a sink."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from astra_parts.sink import Recorder, Sink, SinkRun
from astra_parts.testing.contracts.common import class_of, options_of, promise

_STEPS: tuple[tuple[dict[str, float], int], ...] = (
    ({"eval/attack_success_rate": 0.25}, 0),
    ({"train/loss": 0.5, "reward/novelty": -1e-9}, 1),
    ({"eval/attack_success_rate": 0.5}, 1),
    ({"train/loss": 1e20}, 2),
)


def check_sink(plugin: str | type[Sink], **options: Any) -> None:
    """Raises AssertionError unless a sink may be named under ``tracking.sinks``.

    - Its options refuse unknown keys, and it is built as ``Class(options, run=run)``.
    - It takes any finite figures, also those of one step in several calls, and ends.
    - Opened again in the same folder, it gets no figure a second time, and continues with a later
    step, also after a run that failed.
    - Two runs do not affect each other.
    """
    found = class_of("sink", plugin)
    found.check()
    own = options_of("sink", found, options)
    with tempfile.TemporaryDirectory() as place:
        first = SinkRun("5f" * 32, Path(place) / "first", {"training": {"lr": 0.5}})
        other = SinkRun("c0" * 32, Path(place) / "other", {})
        once = list(_STEPS)
        _check_equal(once, _record(found(own, run=first), _STEPS), "a run is recorded")
        later = ({"train/loss": 0.125}, 3)
        again = _record(found(own, run=first), (*_STEPS, later))
        _check_equal([later], again, "a resumed run records no figure twice, and goes on")
        _check_equal(once, _record(found(own, run=other), _STEPS), "another run starts empty")


def _record(sink: Sink, steps: Any) -> list[tuple[dict[str, float], int]]:
    """The figures of these steps that the sink was given."""
    given: list[tuple[dict[str, float], int]] = []
    write = sink.write

    def note(figures: Mapping[str, float], step: int) -> None:
        given.append((dict(figures), step))
        write(figures, step)

    sink.write = note  # type: ignore[method-assign]
    recorder = Recorder(sink)
    for figures, step in steps:
        recorder.log_step(figures, step)
    recorder.finish("FAILED")
    return given


def _check_equal(expected: Any, found: Any, words: str) -> None:
    """Raises unless both are equal."""
    promise(expected == found, f"{words}, got {found}")
