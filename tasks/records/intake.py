"""How a source's rows were handled: ``intake.json`` and ``places.parquet`` beside the prompts."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.records.reports import read_record, write_record

if TYPE_CHECKING:
    import pyarrow as pa

INTAKE_FILE = "intake.json"
PLACES_FILE = "places.parquet"


@dataclass(frozen=True, slots=True)
class Intake:
    """Duplicates and leaks between splits, which the prompts stage resolves.

    Attributes:
        num_duplicates: Rows whose text an earlier row has; dropped.
        num_dev_duplicates: Those duplicates whose text is in the dev file: an exact leak.
        num_near_dev: Near duplicates of the dev file; dropped.
        num_kept_together: Prompts that a split by rows would have separated from their near
            duplicates; each is in the split of its family.
    """

    num_read: int
    num_duplicates: int
    num_dev_duplicates: int
    num_near_dev: int
    num_kept_together: int

    @property
    def figures(self) -> dict[str, float]:
        """The counts and the share of rows that are duplicates, by name."""
        share = self.num_duplicates / self.num_read if self.num_read else 0.0
        return {**asdict(self), "duplicate_fraction": share}


def write_intake(intake: Intake, folder: Path) -> None:
    """Writes the counts beside the prompts."""
    write_record(intake, folder / INTAKE_FILE)


def read_intake(folder: Path) -> dict[str, float]:
    """The figures of ``write_intake``; empty for a folder that has none."""
    path = folder / INTAKE_FILE
    return read_record(path, Intake).figures if path.is_file() else {}


def places_schema() -> "pa.Schema":
    """The columns: a prompt's id and where a person finds its row, such as ``line 3``."""
    import pyarrow as pa

    return pa.schema({"prompt_id": pa.string(), "place": pa.string()})


def read_places(folder: Path, prompt_ids: Collection[str]) -> Mapping[str, str]:
    """Where the rows of these prompts are in the user's file; empty if they come from no file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = folder / PLACES_FILE
    if not path.is_file() or not prompt_ids:
        return {}
    wanted = pa.array(list(prompt_ids), pa.string())
    rows: list[dict[str, Any]] = pq.read_table(
        path, filters=pc.field("prompt_id").isin(wanted)
    ).to_pylist()
    return {row["prompt_id"]: row["place"] for row in rows}
