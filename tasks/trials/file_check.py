"""``astra validate FILE``: how the first two stages would handle a file, line by line.

The stages themselves run, in a folder that is removed afterwards: nothing of the project changes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from astra_core.errors import ConfigurationError, GateError
from astra_core.errors.exception_text import shorten
from astra_core.files import read_json
from astra_core.paths import found_at, is_file
from astra_core.redaction import mask
from astra_core.rollout.metadata import prompt_id_of
from tasks.expectations.advice import ROW_ADVICE
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import Params
from tasks.pipeline.stage import sections_for
from tasks.promotion.power import Exam
from tasks.records.prompt_table import REASONS, REJECTED, SPLITS
from tasks.sources.columns import Columns
from tasks.sources.distinct_rows import normalise
from tasks.sources.families import FamilyFinder
from tasks.sources.files import FileRow, read_rows
from tasks.sources.rows import columns_of
from tasks.sources.text_files import kind_of_file
from tasks.stages.prompts import PromptsFiles, PromptsParams, PromptsSetup, prepare_prompts
from tasks.stages.validation import (
    ValidationFiles,
    ValidationParams,
    ValidationSetup,
    validate_prompts,
)

BLANK = "blank"
DUPLICATE = "duplicate"
NEAR = "near_duplicate"
LEAK = "leak"
NEAR_LEAK = "near_leak"
_ADVICE = {
    BLANK: "rows without text are dropped",
    DUPLICATE: "of equal texts the first is kept, or one for each prompts.context_column",
    NEAR: "near duplicates stay in one split, so they leak nothing, but many of them add little",
    LEAK: "texts of the dev file are not trained on; take them out of one of the files",
    NEAR_LEAK: "near duplicates of the dev file are not trained on; take them out of one file",
    **ROW_ADVICE,
}
_OTHER = "rejected by the data gate; see 'astra params validation'"
MAX_SHOWN = 10
"""Rows of a kind that are shown on the screen; JSON has all."""
_TEXT_LIMIT = 60


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A problem of one row.

    Attributes:
        line: The line in the file as an editor counts; for json and parquet the row.
        kind: A name of this module, or of a check of the row suite.
        of: The line of the row that it repeats; for a leak a line of the dev file.
    """

    line: int
    kind: str
    of: int | None
    text: str


@dataclass(frozen=True, slots=True)
class FileCheck:
    """How the first two stages would handle a file.

    ``gate``: why the pipeline would stop; empty if it would not.
    """

    path: Path
    num_rows: int
    splits: dict[str, int]
    findings: tuple[RowProblem, ...]
    gate: str
    warnings: tuple[str, ...]
    exam: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Rows by kind of finding, the most frequent first."""
        return dict(Counter(finding.kind for finding in self.findings).most_common())

    def record(self) -> dict[str, Any]:
        """The check as JSON."""
        return {**asdict(self), "path": self.path.as_posix(), "counts": self.counts}

    def lines(self) -> Iterator[str]:
        """The check for a person: what is usable, rows by kind with advice, the gate."""
        sizes = ", ".join(f"{count} {split}" for split, count in self.splits.items())
        usable = sum(self.splits.values())
        yield f"{self.path}: {usable} of {self.num_rows} rows usable ({sizes})"
        unit = "row" if kind_of_file(self.path) in BY_ROW else "line"
        for kind, count in self.counts.items():
            rows = "row" if count == 1 else "rows"
            yield f"{kind:<15} {count} {rows}: {_ADVICE.get(kind, _OTHER)}"
            own = [finding for finding in self.findings if finding.kind == kind]
            for finding in own[:MAX_SHOWN]:
                where = "dev file's " if kind in {LEAK, NEAR_LEAK} else ""
                of = "" if finding.of is None else f"  as {where}{unit} {finding.of}"
                yield f"  {unit} {finding.line}{of}  {finding.text}".rstrip()
            if count > MAX_SHOWN:
                yield f"  and {count - MAX_SHOWN} more; --json lists all"
        yield from self.exam
        for name in self.warnings:
            yield f"warning         {name}"
        yield f"{'gate':<15} {self.gate or 'passes'}"


def check_file(params: Params, path: Path, dev_path: Path | None = None) -> FileCheck:
    """The check of a file under these parameters.

    ``params``: the two files replace its ``prompts.path`` and ``dev_path``.

    Raises ConfigurationError if there is no such file, or it lacks the column; DataError if a file
    is broken, or holds no prompt.
    """
    for option, file in (("FILE", path), ("--dev", dev_path)):
        if file is not None and not is_file(file):
            msg = f"{option} must name a file of prompts, got {found_at(file)}; check the path"
            raise ConfigurationError(msg)
    record = params.prompts.model_dump() | {"source": "file", "path": path, "dev_path": dev_path}
    prompts = PromptsConfiguration.model_validate(record)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        made = PromptsFiles(folder=folder / "prompts")
        own = PromptsParams(data_seed=params.data_seed, prompts=prompts)
        summary = prepare_prompts(PromptsSetup.of(own), made)
        gate, report, reasons = _validate(params, made.folder, folder)
    dev = [] if dev_path is None else list(_texts(dev_path, prompts))
    findings = tuple(_findings(prompts, dev, reasons))
    splits = {split: int(report["splits"].get(split, 0)) for split in SPLITS}
    own_params = params.model_copy(update={"prompts": prompts})
    return FileCheck(
        path=path,
        num_rows=summary.num_read - len(dev),
        splits=splits,
        exam=tuple(Exam(own_params, splits["test"]).lines()),
        findings=findings,
        gate=gate,
        warnings=tuple(report["warnings"]),
    )


def _validate(
    params: Params, prompts: Path, folder: Path
) -> tuple[str, dict[str, Any], dict[str, list[str]]]:
    """Why the gate would stop, the report, and the reasons for each rejected prompt."""
    import pyarrow.parquet as pq

    files = ValidationFiles(
        folder=prompts,
        valid=folder / "valid",
        report=folder / "validation.json",
        page=folder / "validation.md",
        docs=folder / "prompts.html",
    )
    gate = ""
    try:
        validate_prompts(ValidationSetup.of(sections_for(ValidationParams, params)), files)
    except GateError as error:
        gate = shorten(str(error).partition("; see ")[0])
    report: dict[str, Any] = read_json(files.report)
    table = pq.read_table(files.valid / f"{REJECTED}.parquet", columns=["prompt_id", REASONS])
    return gate, report, {row["prompt_id"]: row[REASONS] for row in table.to_pylist()}


def _findings(
    prompts: PromptsConfiguration, dev: list[tuple[int, str, str]], reasons: dict[str, list[str]]
) -> Iterator[RowProblem]:
    """The problems of the rows, in the order of the file."""
    rows = list(_texts(prompts.path or Path(), prompts))
    roots = _roots([text for _, text, _ in (*dev, *rows)])
    in_dev = {name: line for line, _, name in reversed(dev)}
    first: dict[str, int] = {}
    for place, (line, text, name) in enumerate(rows, start=len(dev)):
        shown = shorten(mask(text), limit=_TEXT_LIMIT)
        root = int(roots[place])
        if not text:
            yield RowProblem(line, BLANK, None, "")
        elif name in in_dev:
            yield RowProblem(line, LEAK, in_dev[name], shown)
        elif name in first:
            yield RowProblem(line, DUPLICATE, first[name], shown)
        elif root < len(dev):
            yield RowProblem(line, NEAR_LEAK, dev[root][0], shown)
        else:
            if root != place and rows[root - len(dev)][1] != text:
                yield RowProblem(line, NEAR, rows[root - len(dev)][0], shown)
            for reason in reasons.get(name, ()):
                yield RowProblem(line, reason, None, shown)
        first.setdefault(name, line)


def _texts(path: Path, prompts: PromptsConfiguration) -> Iterator[tuple[int, str, str]]:
    """Of each row the line, the text and the prompt's id."""
    for line, row in numbered_rows(path, columns_of(prompts)):
        text = normalise(row.text)
        yield line, text, prompt_id_of(text, row.metadata)


def _roots(texts: list[str]) -> list[int]:
    """For each text the index of the first of its near duplicates; blank texts are alone."""
    finder = FamilyFinder()
    finder.add(text or f"blank {place}" for place, text in enumerate(texts))
    return [int(root) for root in finder.roots()]


BY_ROW = (".json", ".parquet", ".yaml")
"""Suffixes of files whose rows are not lines; the first row is 1."""


def numbered_rows(path: Path, columns: Columns) -> Iterator[tuple[int, FileRow]]:
    """Number and row in the order of the file; one over several lines has the first's number."""
    for row in read_rows(path, columns):
        # Such as ``line 3`` or ``row 3``.
        yield int(row.place.rpartition(" ")[2]), row
