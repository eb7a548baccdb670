"""A CSV file that grows with the run: one line per figure, for a spreadsheet or ``tail -f``."""

import csv
import os
from collections.abc import Iterator, Mapping

from astra_core.config import Section
from astra_parts.sink import Sink, SinkRun

FILE = "figures.csv"
_COLUMNS = ("step", "name", "value")


class CsvSink(Sink):
    """Writes ``figures.csv`` with the columns step, name and value; resumes after a whole line."""

    def __init__(self, options: Section, *, run: SinkRun) -> None:
        super().__init__(options, run=run)
        self._path = run.folder / FILE
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            # Without the rest of a line that a kill cut; the run writes it again.
            os.truncate(self._path, self._path.read_bytes().rfind(b"\n") + 1)

    def write(self, figures: Mapping[str, float], step: int) -> None:
        """Appends a line per figure."""
        with self._path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if not file.tell():
                writer.writerow(_COLUMNS)
            writer.writerows((step, name, value) for name, value in figures.items())

    def recorded_figures(self) -> Iterator[tuple[str, int]]:
        """The figures in the file."""
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as file:
                yield from ((row["name"], int(row["step"])) for row in csv.DictReader(file))
