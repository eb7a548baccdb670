"""``python -m benchmarks [MEASURE]``: every benchmark of speed, or one measure, as Markdown.

The exit status is 1 if a measure fails, or a limit is exceeded, of time or of the difference
between two results that should be equal. Of the measures, ``trainer_overhead``, ``rollout``,
``update``, ``decode`` and ``profiles`` are those of speed and share the options below. ``overhead``
takes a minute, ``default_run``, ``neighbours``, ``data_scale``, ``scaling``, ``seeds``,
``staleness``, ``nodes``, ``method``, ``gate``, ``credit``, ``endpoint``, ``gpu``, ``chat``,
``chat_rollout`` and ``forecast`` take minutes and run only when they are named; each has options of
its own, as in ``python -m benchmarks seeds 3 4 5``.
"""

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from astra_core.engine.memory import keep_freed_memory
from astra_core.errors import AstraError
from astra_core.errors.exception_text import error_line, excerpt
from astra_core.paths import found_at, is_file, kind_of
from astra_parts.arguments import LineParser, at_least_one
from benchmarks.figures import Report, table
from benchmarks.processor import machine
from benchmarks.shapes import GPT2_SMALL, SHAPES, Shape
from benchmarks.timing import Effort

Measure = Callable[[Shape, Effort], Report]
BENCHMARKS = ("trainer_overhead", "rollout", "update", "decode", "profiles")
"""Measures of speed, which share options."""

COMMANDS = (
    *("default_run", "overhead", "neighbours", "data_scale", "scaling", "seeds", "staleness"),
    *("nodes", "method", "gate", "credit", "endpoint", "gpu", "chat", "chat_rollout", "forecast"),
)
"""Measures that take minutes and have their own options."""

MARKS = ("<!-- figures: begin -->", "<!-- figures: end -->")
"""Between these a page keeps what the last run printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the requested measures have run."""
    first, *rest = [*(sys.argv[1:] if arguments is None else arguments)] or [""]
    if first in COMMANDS:
        try:
            status: int = _module(first).main(rest)
        except AstraError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        return status
    if not first or first.startswith("-"):
        return _measure_speed(arguments)
    if first not in BENCHMARKS:
        measures = [*BENCHMARKS, *COMMANDS]
        _parser().error(f"unknown measure {excerpt(first)}; measures are {measures}")
    return _measure_speed(["--only", first, *rest])


def _measure_speed(arguments: Sequence[str] | None) -> int:
    asked = _parser().parse_args(arguments)
    # As in the stages that run models; ``Way`` says what others do.
    keep_freed_memory()
    effort = Effort(
        threads=asked.threads,
        repetitions=asked.repetitions,
        plain_repetitions=asked.plain_repetitions,
        trees=asked.trees,
        has_one_thread=not asked.skip_one_thread,
    )
    names = asked.only or BENCHMARKS
    measures = {name: _module(name).report for name in names}
    reports = list(measured(measures, SHAPES[asked.shape], effort))
    text = "\n".join(_lines(reports))
    print(text)
    if asked.markdown:
        _write(asked.markdown, text)
    figures = [figure for report in reports for figure in report.figures]
    return int(len(reports) < len(measures) or not all(figure.is_kept for figure in figures))


def _module(name: str) -> Any:
    """Of one measure: another may need packages that are not installed here."""
    return importlib.import_module(f"benchmarks.measures.{name}")


def measured(measures: Mapping[str, Measure], shape: Shape, effort: Effort) -> Iterator[Report]:
    """The reports of these measures; one that fails is told, and the others go on."""
    for name, measure in measures.items():
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            yield measure(shape, effort)
        except Exception as error:  # noqa: BLE001 - hours of the others would be lost with it
            print(f"error: {name} failed with {error_line(error)}", file=sys.stderr, flush=True)


def _lines(reports: Sequence[Report]) -> list[str]:
    """The machine, the tables, the figures, and the ratios last."""
    lines = [machine(), ""]
    for report in reports:
        for text in report.tables:
            lines += [text, ""]
    figures = [figure for report in reports for figure in report.figures]
    if figures:
        lines += [table(figures), ""]
    ratios = {name: ratio for report in reports for name, ratio in report.ratios.items()}
    return [*lines, *(f"{name}: {ratio:.1f}x" for name, ratio in ratios.items())]


def _write(file: Path, text: str) -> None:
    """Writes the text to a page; if the page has the two marks, between them."""
    page = file.read_text("utf-8") if file.exists() else ""
    head, begin, rest = page.partition(MARKS[0])
    _, end, tail = rest.partition(MARKS[1])
    whole = f"{head}{begin}\n{text}\n{end}{tail}" if end else f"{text}\n"
    file.write_text(whole, "utf-8")


def _page(written: str) -> Path:
    """A writable page, checked before an hour of benchmarks rather than after it."""
    page = Path(written)
    if kind_of(page.parent) != "a folder" or kind_of(page) not in {"a file", "nothing there"}:
        msg = f"must be a file in a folder that exists, got {found_at(page)}"
        raise argparse.ArgumentTypeError(msg)
    try:
        if is_file(page):
            page.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"must be a page in UTF-8, got {found_at(page)}: {type(error).__name__}"
        raise argparse.ArgumentTypeError(msg) from error
    return page


def _parser() -> argparse.ArgumentParser:
    parser = LineParser(prog="python -m benchmarks", description=__doc__)
    effort = Effort()
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, help="default: all of them")
    parser.add_argument("--shape", choices=SHAPES, default=GPT2_SMALL.name)
    parser.add_argument(
        "--threads", type=at_least_one, default=effort.threads, help="default: all cores"
    )
    parser.add_argument(
        "--repetitions", type=at_least_one, default=effort.repetitions, help="of our ways"
    )
    parser.add_argument(
        "--plain-repetitions",
        type=at_least_one,
        default=effort.plain_repetitions,
        help="of the ways that take ten times as long",
    )
    parser.add_argument(
        "--trees", type=at_least_one, default=effort.trees, help="that we treat at once"
    )
    parser.add_argument(
        "--skip-one-thread", action="store_true", help="take no processor time at one thread"
    )
    parser.add_argument("--markdown", type=_page, help="a page to write the output to as well")
    return parser


if __name__ == "__main__":
    sys.exit(main())
