"""Findings in the files of other tools; the texts are as far masked as the findings given are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, get_args

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from astra_core.files import write_text
from astra_core.paths import is_file, kind_of
from tasks.findings.archive import ARCHIVE
from tasks.findings.builds import junit, sarif
from tasks.findings.listing import Detail, detail_of
from tasks.findings.replay import SuiteCase, hits_of
from tasks.findings.scanners import (
    Texts,
    garak,
    lines_of,
    messages_of,
    promptfoo_results,
    promptfoo_tests,
)
from tasks.findings.tags import tags_of
from tasks.records.reports import csv_text
from tasks.tracking.lineage.provenance import is_tracked

LABELLED = "labelled"
"""The export that ``judge-check`` reads; the others leave out what people call a false positive."""
REFUSAL = "I can't help with that. Is there something else that I can help you with?"
"""The reply that is preferred to the one that was found."""
_COLUMNS = (
    *("BehaviorID", "Behavior", "FunctionalCategory", "SemanticCategory", "Tags"),
    *("ContextString", "test_case", "generation", "label"),
)
_CARD_FILE, _ROWS_FILE = "README.md", "data/findings.jsonl"
_CARD = """\
---
pretty_name: Findings of Astra
tags: [red-teaming, not-for-all-audiences]
configs:
- config_name: default
  data_files: data/findings.jsonl
---
# Findings of Astra

Content warning: attacks on a language model and its offensive replies. Masked words have dots.

A row is a conversation (`messages`) at whose last turn the target failed, with the judge's `scores`
of all replies there, digests of attacker and target, and `tags` of catalogues of risks. `outcome`
is `hit`, or `miss` or `no answer` where the attack was said again. `label` is `confirmed` where a
person said so. `metadata` is JSON.
"""
_CARD_HEAD = _CARD.partition("\n\n")[0].encode()
_CLONE = {".git", ".gitattributes"}
"""What a clone of a new data set on the Hub has."""
_FILES = {".jsonl", ".json", ".csv", ".xml", ".sarif"}
_ELSEWHERE = {"probes", "replies", "others", "metadata"}
"""What a row of a dataset has in another form."""


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A format.

    Attributes:
        write: The texts of its files, by what takes the place of the file's suffix.
        file_name: The name of its file if none is given.
        details: The levels of detail that it can do with.
        suffixes: What takes the place of the file's suffix, as of the texts.
        is_folder: Whether what is named is a folder, and the suffixes are files in it.
    """

    write: Callable[[Sequence[SuiteCase]], Texts]
    file_name: str
    details: tuple[Detail, ...] = get_args(Detail)
    suffixes: tuple[str | None, ...] = (None,)
    is_folder: bool = False

    def places(self, path: Path) -> list[Path]:
        """The files that are written if this one is named."""
        if self.is_folder:
            return [path / str(each) for each in self.suffixes]
        stem = path.name.removesuffix(".jsonl").removesuffix(".report").removesuffix(".hitlog")
        return [path if each is None else path.with_name(stem + each) for each in self.suffixes]


def check_export(name: str, path: Path | None, detail: str) -> tuple[Path, Detail]:
    """The file or folder to write and the level of detail, both usable; none is the format's own.

    Raises ConfigurationError if one is not, or there is no such format.
    """
    if name not in FORMATS:
        msg = f"--export must be one of {', '.join(FORMATS)}, got {excerpt(name)}; name one"
        raise ConfigurationError(msg)
    own, level = FORMATS[name], detail_of(detail)
    if level not in own.details:
        wanted = " or ".join(own.details)
        msg = f"--export {name} must have --detail {wanted}, for its texts are said, got {level}"
        raise ConfigurationError(msg)
    path = Path("reports", own.file_name) if path is None else path
    places = own.places(path)
    if own.is_folder:
        _check_folder(path)
    for place in places if own.is_folder else (path, *places):
        _check_place(place)
    return path, level


def _check_folder(path: Path) -> None:
    """Refuses what is no folder, and one of something else, which would be lost or mixed up."""
    kind, card, data = kind_of(path), path / _CARD_FILE, (path / _ROWS_FILE).parent
    got = ""
    if kind == "a folder":
        is_ours = is_file(card) and card.read_bytes().startswith(_CARD_HEAD)
        own = {card, data, path / _ROWS_FILE} if is_ours else set()
        others = {*path.iterdir(), *(data.iterdir() if is_ours and data.is_dir() else ())} - own
        names = {str(each.relative_to(path)) for each in others} - _CLONE
        got = f"with {excerpt(min(names))} in it" if names else ""
    elif kind != "nothing there":
        got = f"({kind})"
    elif path.suffix in _FILES:
        got = "(a name of a file)"
    if got:
        shown = excerpt(str(path))
        msg = f"--to must be a new folder or one to replace, got {shown} {got}; name another"
        raise ConfigurationError(msg)


def _check_place(place: Path) -> None:
    kind, got = kind_of(place), ""
    if kind not in {"a file", "nothing there"}:
        got = kind
    elif place.resolve().is_relative_to(ARCHIVE.resolve()):
        got = "one in the archive"
    elif kind == "a file" and (place.name in {"params.yaml", "dvc.lock"} or is_tracked(place)):
        got = "a file of the project"
    else:
        above = next(each for each in place.absolute().parents if each.exists())
        try:
            TemporaryFile(dir=above).close()
        except OSError as error:
            got = f"one in {above}: {error.strerror}"
    if got:
        shown = excerpt(str(place))
        msg = f"--to must be a new file or one to replace, got {shown} ({got}); name another"
        raise ConfigurationError(msg)


def export(name: str, outcomes: Sequence[SuiteCase], path: Path) -> list[Path]:
    """The files that were written in this format, at a path that was checked.

    ``sarif``, ``harmbench``, ``preferences``, ``refusals`` and ``promptfoo-tests`` have hits alone.
    """
    own = FORMATS[name]
    texts = own.write(outcomes)
    written = own.places(path)
    for suffix, place in zip(own.suffixes, written, strict=True):
        # Half a character, which UTF-8 cannot hold, is written as JSON writes it.
        write_text(texts[suffix].encode("utf-8", "backslashreplace").decode(), place)
    return written


def _harmbench(outcomes: Sequence[SuiteCase]) -> Texts:
    rows = []
    for each in hits_of(outcomes):
        goal = str(each.columns.get("goal") or each.prompt)
        context = str(each.columns.get("context") or "")
        kind = "contextual" if context else "standard"
        tags = ", ".join(tags_of(each))
        said = [each.finding_id, goal, kind, each.category, tags, context]
        cells = (*said, each.probes[-1], each.replies[-1], 1)
        rows.append(dict(zip(_COLUMNS, cells, strict=True)))
    return {None: csv_text(rows, _COLUMNS)}


def _answer(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _preferences(outcomes: Sequence[SuiteCase]) -> Texts:
    rows = (
        {
            "prompt": messages_of(each),
            "chosen": _answer(REFUSAL),
            "rejected": _answer(each.replies[-1]),
        }
        for each in hits_of(outcomes)
    )
    return {None: lines_of(rows)}


def _refusals(outcomes: Sequence[SuiteCase]) -> Texts:
    rows = (
        {"prompt": messages_of(each), "completion": _answer(REFUSAL)} for each in hits_of(outcomes)
    )
    return {None: lines_of(rows)}


def _labelled_replies(outcomes: Sequence[SuiteCase]) -> Texts:
    """What ``tasks.sources.labelled`` reads."""
    rows = (
        {
            "reply": own.finding.replies[-1],
            "label": int(own.label == "confirmed"),
            "probe": own.finding.probes[-1],
            "prompt": own.finding.prompt,
            "category": own.finding.category,
            "conversation": [
                {"role": turn["role"], "text": turn["content"]}
                for turn in messages_of(own.finding)[:-1]
            ],
        }
        for own in outcomes
    )
    return {None: lines_of(rows)}


def _dataset(outcomes: Sequence[SuiteCase]) -> Texts:
    rows = lines_of(map(_row, outcomes))
    # Half a character is refused by Arrow, which reads this, even as JSON writes it.
    return {_CARD_FILE: _CARD, _ROWS_FILE: rows.encode("utf-8", "replace").decode()}


def _row(own: SuiteCase) -> dict[str, Any]:
    each = own.finding
    told = {name: value for name, value in each.record().items() if name not in _ELSEWHERE}
    outcome = "no answer" if own.failure else "hit" if own.is_hit else "miss"
    talk = messages_of(each, has_reply=True)
    # Columns of prompts differ by file, those of a dataset must not.
    metadata = each.metadata or "{}"
    return {
        **told,
        "messages": talk,
        "outcome": outcome,
        "label": own.label,
        "tags": tags_of(each),
        "metadata": metadata,
    }


FORMATS: Mapping[str, ExportFormat] = {
    "garak": ExportFormat(
        garak, "findings.report.jsonl", suffixes=(".report.jsonl", ".hitlog.jsonl")
    ),
    "promptfoo-tests": ExportFormat(promptfoo_tests, "findings.tests.json", ("full",)),
    "promptfoo-results": ExportFormat(promptfoo_results, "findings.results.json"),
    "junit": ExportFormat(junit, "findings.xml"),
    "sarif": ExportFormat(sarif, "findings.sarif"),
    "harmbench": ExportFormat(_harmbench, "findings.csv", ("probes", "full")),
    "preferences": ExportFormat(_preferences, "findings.jsonl", ("full",)),
    "refusals": ExportFormat(_refusals, "findings.refusals.jsonl", ("full",)),
    LABELLED: ExportFormat(_labelled_replies, "findings.labelled.jsonl", ("full",)),
    "dataset": ExportFormat(
        _dataset, "findings", suffixes=(_CARD_FILE, _ROWS_FILE), is_folder=True
    ),
}
