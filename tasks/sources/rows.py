"""The rows of the source that params.yaml names: the built-in grammar, a file, or the hub."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from astra_core.rollout.metadata import Scalar, prompt_id_of
from astra_core.seeding import derive_seed
from tasks.params.prompts import DrawnColumn, PromptsConfiguration
from tasks.sources.columns import Columns
from tasks.sources.files import read_rows
from tasks.sources.hub import fetch_dataset


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row of a source.

    Attributes:
        text: None or blank if the source has no text.
        source: The source's name, without the machine's paths.
        place: Where a person finds it in the source; empty if that is not a file.
    """

    text: str | None
    source: str
    licence: str
    family: str | None = None
    is_dev: bool = False
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    place: str = ""


def columns_of(prompts: PromptsConfiguration) -> Columns:
    """The columns that are read from the source; it also collects those left out."""
    return Columns(prompts.text_column, prompts.metadata_columns, told=prompts.told_columns)


def source_rows(
    prompts: PromptsConfiguration, columns: Columns, *, data_seed: int
) -> Iterator[SourceRow]:
    """The rows of the chosen source in its order; those of a dev file come first."""
    for row in _read_rows(prompts, columns, data_seed=data_seed):
        drawn = {
            name: column.values[_place(column, name, row, data_seed=data_seed)]
            for name, column in prompts.drawn_columns.items()
            if row.metadata.get(name) is None
        }
        yield replace(row, metadata={**row.metadata, **drawn}) if drawn else row


def _place(column: DrawnColumn, name: str, row: SourceRow, *, data_seed: int) -> int:
    """Which of the values a row gets: the same for one prompt wherever it stands."""
    own = prompt_id_of(row.text or "", row.metadata) if column.per == "prompt" else ""
    return derive_seed(data_seed, "column", name, own) % len(column.values)


def _read_rows(
    prompts: PromptsConfiguration, columns: Columns, *, data_seed: int
) -> Iterator[SourceRow]:
    if prompts.source == "builtin":
        from tasks.builtin.openers import make_openers

        for opener in make_openers(prompts.num_builtin, seed=data_seed):
            kind = {"category": opener.mood}
            yield SourceRow(opener.text, "builtin", "MIT", family=opener.family, metadata=kind)
        return
    licence = prompts.licence
    if prompts.dev_path is not None:
        name = prompts.dev_path.name
        for row in read_rows(prompts.dev_path, columns):
            place = f"{name} {row.place}"
            yield SourceRow(
                row.text, name, licence, is_dev=True, metadata=row.metadata, place=place
            )
    paths, source = _source_files(prompts)
    for path in paths:
        for row in read_rows(path, columns):
            place = f"{path.name} {row.place}"
            yield SourceRow(row.text, source, licence, metadata=row.metadata, place=place)


def _source_files(prompts: PromptsConfiguration) -> tuple[list[Path], str]:
    if prompts.source == "file":
        path = prompts.path or Path()
        return [path], path.name
    dataset, revision = prompts.dataset or "", prompts.revision or ""
    return fetch_dataset(dataset, revision, split=prompts.hub_split), f"{dataset}@{revision}"
