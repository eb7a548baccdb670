"""A word means one thing: the glossary has those in use and no others, a class name one class."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pages import PAGES, ROOT, prose

from tasks.params.schema import Params

GLOSSARY = (ROOT / "docs/glossary.md", ROOT / "docs/studies/engine.md")
SOURCE = ("astra_core", "astra_parts", "tasks", "flows")
PACKAGES = (*SOURCE, "benchmarks", "plugins")
# Words that are used here as everywhere in the field, so that they need no row.
STANDARD = {
    *(
        "activation",
        "attention",
        "builtin",
        "cache",
        "compilation",
        "distribution",
        "early",
        "fused",
        "head",
    ),
    *(
        "kernel",
        "kl",
        "layer",
        "linear",
        "mask",
        "model",
        "norm",
        "optimizer",
        "option",
        "product",
        "registration",
    ),
    *("rounding", "schedule", "stopping", "timeout", "tracking", "validation", "value"),
}


def test_a_term_has_one_row():
    terms = _terms()

    assert len(terms) > 60
    assert [] == sorted({term for term in terms if terms.count(term) > 1})


def test_a_term_is_used_by_the_code_or_params():
    used = _words("\n".join(path.read_text("utf-8") for path in [*_code(), ROOT / "params.yaml"]))
    unused = [term for term in _terms() if _words(term) not in used]

    assert [] == unused


def test_an_engine_word_of_the_performance_page_has_a_row():
    page = _words(_without_figures_and_code(prose(ROOT / "docs/studies/performance.md")))
    rows = [_words(term) for term in _terms()]
    spoken = {name for name in _engine_names() if name in page}
    missing = [
        name
        for name in spoken
        if not set(name.split()) <= STANDARD and not any(name in row for row in rows)
    ]

    assert {" plan ", " machine ", " split product "} <= spoken
    assert [] == sorted(missing)


def test_every_name_of_the_engine_and_of_a_section_has_its_words_in_the_glossary():
    terms = {word for term in _terms() for word in _words(term).split()}
    # A beginning is enough: a module `packing` is explained by `packed`.
    known = {word[:4] for word in terms | STANDARD}
    named = {word for name in _engine_names() | _section_names() for word in name.split()}

    assert {"carrier", "packing", "staleness", "executor"} <= named
    assert [] == sorted(word for word in named if word[:4] not in known)


def test_a_class_name_stands_once():
    source = "\n".join(path.read_text("utf-8") for path in _code(SOURCE))
    names = Counter(re.findall(r"^ *class (\w+)[(:]", source, re.MULTILINE))

    # Each plug-in has its own ``Options``, which are named with it.
    assert ["Options"] == [name for name, count in names.items() if count > 1]


def test_the_other_system_is_named_in_full():
    alone = re.compile(r"\bASTRA\b(?!-RL)")
    files = [*PAGES, ROOT / "params.yaml", *_code()]
    found = [path.name for path in files if alone.search(path.read_text("utf-8"))]

    assert [] == found


def _terms() -> list[str]:
    """The words of the first columns, one by one."""
    text = "\n".join(page.read_text("utf-8") for page in GLOSSARY)
    cells = re.findall(r"^\| ([a-z][^|]*?) \|", text, re.MULTILINE)
    return [term for cell in cells if cell != "word" for term in cell.split(", ")]


def _words(text: str) -> str:
    """Lower case, one space around each word; names in parts, plurals as the singular."""
    parts = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()
    return f" {' '.join(map(_singular, re.findall(r'[a-z]+|[0-9]+', parts)))} "


def _singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("xes"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _engine_names() -> set[str]:
    """Names of the modules and folders of the engine, as words."""
    files = list((ROOT / "astra_core/engine").rglob("*.py"))
    names = {path.stem for path in files} | {path.parent.name for path in files}
    return {_words(name) for name in names - {"__init__", "engine"}}


def _section_names() -> set[str]:
    """Names of the sections of params.yaml at any depth, as words."""
    return {_words(name) for name in _sections(Params().model_dump())}


def _sections(record: dict[str, Any]) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, dict):
            yield name
            yield from _sections(value)


def _code(packages: tuple[str, ...] = PACKAGES) -> list[Path]:
    return [path for package in packages for path in sorted((ROOT / package).rglob("*.py"))]


def _without_figures_and_code(text: str) -> str:
    spoken = re.sub(r"<!-- figures: begin -->.*<!-- figures: end -->", "", text, flags=re.DOTALL)
    return re.sub(r"`[^`]*`", "", spoken)
