"""The first pass over a source: blank rows and duplicates are dropped and counted."""

import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from astra_core.rollout.metadata import Metadata, prompt_id_of
from tasks.records.intake import PLACES_FILE, places_schema
from tasks.records.prompt_table import METADATA, prompt_schema, spelled_metadata
from tasks.sources.families import FamilyFinder
from tasks.sources.rows import SourceRow

if TYPE_CHECKING:
    import pyarrow as pa

# Rows held in memory at a time, and rows of one parquet row group.
BATCH_ROWS = 8192


def normalise(text: str | None) -> str:
    """The text in Unicode NFC without outer white space or a mark of the byte order.

    Lone surrogates become U+FFFD.
    """
    # JSON can contain half a surrogate pair, which UTF-8 cannot represent.
    whole = (text or "").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return unicodedata.normalize("NFC", whole.replace("\ufeff", "")).strip()


class KnownNumbers:
    """Numbers with the row in which each occurred first; works on whole batches.

    A dictionary of Python numbers would take ten times the memory. The numbers are in sorted runs;
    runs of similar length are merged, so there are few runs and a number is seldom moved.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []

    def rows(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The row of each number; -1 for an unknown number."""
        found = np.full(numbers.size, -1, np.int64)
        for known, rows in self._runs:
            places = np.minimum(np.searchsorted(known, numbers), known.size - 1)
            is_here = known[places] == numbers
            found[is_here] = rows[places[is_here]]
        return found

    def add(self, numbers: NDArray[np.uint64], rows: NDArray[np.int64]) -> None:
        """Adds numbers that are unknown so far, each once."""
        if not numbers.size:
            return
        self._runs.append(_sort(numbers, rows))
        while len(self._runs) > 1 and self._runs[-2][0].size < 2 * self._runs[-1][0].size:
            last, before = self._runs.pop(), self._runs.pop()
            merged = (np.concatenate(pair) for pair in zip(before, last, strict=True))
            self._runs.append(_sort(*merged))


def _sort(
    numbers: NDArray[np.uint64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    order = np.argsort(numbers, kind="stable")
    return numbers[order], rows[order]


@dataclass(slots=True)
class DistinctRows:
    """First pass: normalises, drops blank rows and duplicates, and collects the families.

    ``num_dev``: rows at the head of the spool that came from a dev file.
    """

    finder: FamilyFinder
    ids: "array[int]" = field(default_factory=lambda: array("Q"))
    told: "array[int]" = field(default_factory=lambda: array("q"))
    known: KnownNumbers = field(default_factory=KnownNumbers)
    num_read: int = 0
    num_blank: int = 0
    num_duplicates: int = 0
    num_dev: int = 0
    num_differing: int = 0
    has_metadata: bool = False
    has_places: bool = False
    num_dev_duplicates: int = 0

    def take(self, rows: Iterable[SourceRow], spool: Path) -> None:
        """Writes the kept rows to ``spool``."""
        import pyarrow.parquet as pq

        columns = ("prompt_id", "text", "source", "licence", "family", METADATA)
        places = spool.with_name(PLACES_FILE)
        with (
            pq.ParquetWriter(spool, prompt_schema(columns)) as writer,
            pq.ParquetWriter(places, places_schema()) as map_writer,
        ):
            for batch in _batches(rows):
                kept = self._new_records(batch)
                self.finder.add(record["text"] or "" for record in kept if not record["family"])
                writer.write_batch(record_batch(kept, columns))
                if self.has_places:
                    map_writer.write_batch(record_batch(kept, places_schema().names))
        if not self.has_places:
            places.unlink()
        # The second pass needs neither, and has its own arrays.
        self.known, self.told = KnownNumbers(), array("q")

    def _new_records(self, batch: list[SourceRow]) -> list[dict[str, str | None]]:
        """The records of the rows whose text and context occur for the first time."""
        texts = [normalise(row.text) for row in batch]
        self.num_read += len(batch)
        self.num_blank += texts.count("")
        told = [
            (row, text, prompt_id_of(text, row.metadata))
            for row, text in zip(batch, texts, strict=True)
        ]
        rows = [(row, text, name, int(name, 16)) for row, text, name in told if text]
        first = len(self.ids)
        before = self.known.rows(np.array([number for *_, number in rows], np.uint64))
        places: dict[int, int] = {}
        kept = []
        for (row, text, prompt_id, number), place in zip(rows, before.tolist(), strict=True):
            metadata = hash(Metadata(row.metadata))
            earlier = places.get(number, place)
            if earlier >= 0:
                self.num_duplicates += 1
                self.num_differing += self.told[earlier] != metadata
                self.num_dev_duplicates += not row.is_dev and earlier < self.num_dev
                continue
            places[number] = len(self.ids)
            self.ids.append(number)
            self.told.append(metadata)
            self.num_dev += row.is_dev
            kept.append(self._record(row, text, prompt_id))
        new = np.array(self.ids[first:], np.uint64)
        self.known.add(new, np.arange(first, len(self.ids)))
        return kept

    def _record(self, row: SourceRow, text: str, prompt_id: str) -> dict[str, str | None]:
        metadata = spelled_metadata(row.metadata)
        self.has_metadata |= metadata is not None
        self.has_places |= bool(row.place)
        return {
            "prompt_id": prompt_id,
            "text": text,
            "source": row.source,
            "licence": row.licence,
            "family": row.family,
            METADATA: metadata,
            "place": row.place,
        }


def _batches(rows: Iterable[SourceRow]) -> Iterator[list[SourceRow]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, BATCH_ROWS)):
        yield batch


def record_batch(records: list[dict[str, Any]], columns: Sequence[str]) -> "pa.RecordBatch":
    """Prompts as a record batch with the columns of their files."""
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(records, schema=prompt_schema(columns))
