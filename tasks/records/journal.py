"""What happened in a training run, update by update, beside its checkpoints and as a table."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from astra_core.files import write_text
from tasks.records.reports import nan_as_null


class Journal:
    """One line per optimiser update, beside the checkpoints, so that a resumed run has them all.

    Lines after the resumed state are cut, because those updates are done again.
    """

    def __init__(self, path: Path, *, last_step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                # The last line may have been cut by a kill.
                with suppress(json.JSONDecodeError):
                    row = json.loads(line)
                    if row["step"] <= last_step:
                        kept.append(line)
        write_text("".join(f"{line}\n" for line in kept), path)
        self._path = path

    def add(self, row: dict[str, float]) -> None:
        """Appends a row."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(nan_as_null(row)) + "\n")

    def rows(self) -> list[dict[str, Any]]:
        """Every row, oldest first."""
        return [json.loads(line) for line in self._path.read_text(encoding="utf-8").splitlines()]


def step_table(
    rows: Sequence[Mapping[str, Any]], evaluations: Mapping[int, Mapping[str, float]]
) -> str:
    """Updates and evaluations as CSV, one row per update; row 0 is the untrained attacker.

    Columns are sorted, because a resumed run reads its figures from files, in another order than
    they were measured in.

    Args:
        rows: The rows of the journal.
        evaluations: Figures of evaluations by the number of updates before them.
    """
    untrained = {"step": 0, "training_step": 0}
    joined = [{**row, **evaluations.get(int(row["step"]), {})} for row in (untrained, *rows)]
    names = {name for row in joined for name in row}
    columns = [*untrained, *sorted(names - untrained.keys())]
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(joined)
    return buffer.getvalue()
