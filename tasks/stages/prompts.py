"""The prompts stage: distinct seed prompts from a source, split into train, dev and test.

Rows are read twice, the second time from a file in the output's draft folder: near-duplicate groups
are known only after the last row, and the whole set need not fit into memory. A few dozen bytes per
row must.
"""

from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from astra_core.errors import DataError
from astra_core.files import draft_folder_of
from astra_core.rollout.metadata import prompt_id_of
from astra_core.seeding import derive_key
from tasks.params.prompts import PromptsConfiguration
from tasks.pipeline.stage import Out, stage
from tasks.records.intake import Intake, write_intake
from tasks.records.prompt_table import COLUMNS, METADATA, SPLITS, prompt_schema
from tasks.sources.columns import Columns
from tasks.sources.distinct_rows import BATCH_ROWS, DistinctRows, record_batch
from tasks.sources.families import FamilyFinder
from tasks.sources.rows import SourceRow, columns_of, source_rows


@dataclass(frozen=True, slots=True)
class PromptsSummary:
    """How the rows of a source were handled."""

    num_read: int
    num_blank: int
    num_duplicates: int
    num_near_dev: int
    num_families: int
    splits: dict[str, int]
    num_differing: int = 0
    left_out: str = ""
    num_dev_duplicates: int = 0
    num_kept_together: int = 0
    test_share: float = 0.0

    @property
    def intake(self) -> Intake:
        """The counts of duplicates and leaks, which the validation report shows."""
        return Intake(
            num_read=self.num_read,
            num_duplicates=self.num_duplicates,
            num_dev_duplicates=self.num_dev_duplicates,
            num_near_dev=self.num_near_dev,
            num_kept_together=self.num_kept_together,
        )

    def summary(self) -> str:
        """One line for a person."""
        sizes = ", ".join(f"{count} {split}" for split, count in self.splits.items())
        dropped = f"{self.num_blank} blank, {self.num_duplicates} duplicate"
        if self.num_near_dev:
            dropped += f", {self.num_near_dev} too close to the dev file"
        if self.num_differing:
            dropped += f" ({self.num_differing} of other metadata than the first of its text)"
        line = (
            f"{self.num_read} rows read: {sizes} prompts in {self.num_families} families, "
            f"{self.test_share:.0%} for the test and duels (prompts.test_fraction); "
            f"dropped {dropped}"
        )
        return line + (f"; left out columns: {self.left_out}" if self.left_out else "")


@dataclass(frozen=True, slots=True)
class PromptsParams:
    """The sections that decide the prompts."""

    data_seed: int
    prompts: PromptsConfiguration


@dataclass(frozen=True, slots=True)
class PromptsFiles:
    """Where the prompts go."""

    folder: Out = Path("data/prompts")


@dataclass(frozen=True, slots=True)
class PromptsSetup:
    """The rows of the source, which are read once, their columns, and how they are split."""

    rows: Iterator[SourceRow]
    columns: Columns
    prompts: PromptsConfiguration
    data_seed: int

    @classmethod
    def of(cls, params: PromptsParams) -> Self:
        """Finds the source; nothing is read yet."""
        prompts, columns = params.prompts, columns_of(params.prompts)
        rows = source_rows(prompts, columns, data_seed=params.data_seed)
        return cls(rows, columns, prompts, params.data_seed)


@stage()
def prepare_prompts(setup: PromptsSetup, files: PromptsFiles = PromptsFiles()) -> PromptsSummary:
    """Distinct prompts with stable ids in ``train``, ``dev`` and ``test`` parquet files.

    A prompt's split depends only on the shares, the data seed and its family of near duplicates: it
    stays the same when rows are appended or ``seed`` changes, and no near duplicate of it is in
    another split. A share that is left out falls in steps as a file grows.

    Raises ConfigurationError if the source cannot be found or lacks the column, DataError if the
    source is broken or holds no prompt.
    """
    with draft_folder_of(files.folder) as draft:
        spool = draft / "rows.parquet"
        intake = DistinctRows(FamilyFinder(draft))
        intake.take(setup.rows, spool)
        if not intake.ids:
            msg = (
                f"source '{setup.prompts.source}' must hold at least one prompt, "
                f"got {intake.num_read} rows and none with text; "
                "check prompts.path and prompts.text_column"
            )
            raise DataError(msg)
        share = setup.prompts.test_share(len(intake.ids) - intake.num_dev)
        settled = setup.prompts.model_copy(update={"test_fraction": share})
        summary = _write_splits(replace(setup, prompts=settled), intake, spool)
        summary = replace(summary, left_out=setup.columns.summary(), test_share=share)
        write_intake(summary.intake, draft)
        spool.unlink()
    return summary


def split_of(family: str, setup: PromptsSetup) -> str:
    """The split of a family of near duplicates, by its hash alone once the shares are settled."""
    prompts = setup.prompts
    share = prompts.test_fraction or 0.0
    place = int.from_bytes(derive_key(setup.data_seed, "split", family), "big") / 2.0**128
    if place < share:
        return "test"
    if prompts.dev_path is None and place < share + prompts.dev_fraction:
        return "dev"
    return "train"


def _write_splits(setup: PromptsSetup, intake: DistinctRows, spool: Path) -> PromptsSummary:
    """Second pass: writes each row of the spool to the file of its split."""
    import pyarrow.parquet as pq

    counts = Counter(dict.fromkeys(SPLITS, 0))
    families = array("Q")
    num_kept_together = 0
    columns = (*COLUMNS, METADATA) if intake.has_metadata else COLUMNS
    with ExitStack() as stack:
        writers = {}
        for split in SPLITS:
            writer = pq.ParquetWriter(spool.with_name(f"{split}.parquet"), prompt_schema(columns))
            writers[split] = stack.enter_context(writer)
        for records in _place(setup, intake, spool):
            families.extend(int(prompt_id_of(record["family"]), 16) for record in records)
            num_kept_together += sum(_is_kept_together(record, setup) for record in records)
            for split, writer in writers.items():
                rows = [record for record in records if record["split"] == split]
                counts[split] += len(rows)
                writer.write_batch(record_batch(rows, columns))
    return PromptsSummary(
        num_read=intake.num_read,
        num_blank=intake.num_blank,
        num_duplicates=intake.num_duplicates,
        num_near_dev=len(intake.ids) - counts.total(),
        num_families=np.unique(np.frombuffer(families, np.uint64)).size,
        splits=dict(counts),
        num_differing=intake.num_differing,
        num_dev_duplicates=intake.num_dev_duplicates,
        num_kept_together=num_kept_together,
    )


def _is_kept_together(record: dict[str, Any], setup: PromptsSetup) -> bool:
    """True if a split by rows would have separated the prompt from its near duplicates."""
    prompt_id, family, split = (str(record[name]) for name in ("prompt_id", "family", "split"))
    return family != prompt_id and split_of(prompt_id, setup) != split


def _place(
    setup: PromptsSetup, intake: DistinctRows, spool: Path
) -> Iterator[list[dict[str, Any]]]:
    """Batches of the spool with family and split, without near duplicates of the dev file."""
    import pyarrow.parquet as pq

    roots = intake.finder.roots()
    first = 0
    with pq.ParquetFile(spool) as file:
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            placed = []
            for row, record in enumerate(batch.to_pylist(), start=first):
                # A source names the families of all of its rows or of none.
                root = row if record["family"] else int(roots[row])
                family = record["family"] or f"{intake.ids[root]:016x}"
                if root < intake.num_dev <= row:
                    continue
                split = "dev" if row < intake.num_dev else split_of(family, setup)
                placed.append(record | {"family": family, "split": split})
            first += batch.num_rows
            yield placed
