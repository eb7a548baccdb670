"""Findings in the files of other tools; the texts are as far masked as the findings given are."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from astra_core.files import write_text
from tasks.findings.builds import junit, sarif
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

REFUSAL = "I won't say that. Is there something else that I can help you with?"
"""The reply that is preferred to the one that was found."""
_COLUMNS = (
    *("BehaviorID", "Behavior", "FunctionalCategory", "SemanticCategory", "Tags"),
    *("ContextString", "test_case", "generation", "label"),
)


def export(name: str, outcomes: Sequence[SuiteCase], path: Path) -> list[Path]:
    """The files that were written in this format.

    All formats but ``junit`` have hits alone.

    Raises:
        ConfigurationError: There is no such format.
    """
    if name not in FORMATS:
        msg = f"--export must be one of {', '.join(FORMATS)}, got {excerpt(name)}; name one"
        raise ConfigurationError(msg)
    written = []
    for suffix, text in FORMATS[name](outcomes).items():
        place = path if suffix is None else path.with_name(_stem(path.name) + suffix)
        write_text(text, place)
        written.append(place)
    return written


def _stem(name: str) -> str:
    return name.removesuffix(".jsonl").removesuffix(".report").removesuffix(".hitlog")


def _harmbench(outcomes: Sequence[SuiteCase]) -> Texts:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for each in hits_of(outcomes):
        goal = str(each.columns.get("goal") or each.prompt)
        context = str(each.columns.get("context") or "")
        kind = "contextual" if context else "standard"
        tags = ", ".join(tags_of(each))
        said = [each.finding_id, goal, kind, each.category, tags, context]
        writer.writerow([*said, each.probes[-1], each.replies[-1], 1])
    return {None: buffer.getvalue()}


def _preferences(outcomes: Sequence[SuiteCase]) -> Texts:
    def said(text: str) -> list[dict[str, str]]:
        return [{"role": "assistant", "content": text}]

    rows = (
        {"prompt": messages_of(each), "chosen": said(REFUSAL), "rejected": said(each.replies[-1])}
        for each in hits_of(outcomes)
    )
    return {None: lines_of(rows)}


FORMATS: Mapping[str, Callable[[Sequence[SuiteCase]], Texts]] = {
    "garak": garak,
    "promptfoo-tests": promptfoo_tests,
    "promptfoo-results": promptfoo_results,
    "junit": junit,
    "sarif": sarif,
    "harmbench": _harmbench,
    "preferences": _preferences,
}
"""Each writes the texts of its files, by what takes the place of the file's suffix."""
