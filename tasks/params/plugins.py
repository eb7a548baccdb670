"""The plug-ins that params.yaml names, and the code and data outside of plugins/ behind them.

A stage depends on both as it depends on ``plugins/``: dvc.yaml lists them, and a training's key
includes the digests of the code. A plug-in reports what it makes of its data in its own version or
digest.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from astra_core.files import file_digest
from astra_parts.sources import sources_of

PLUGINS = Path("plugins")
"""The folder that every stage which uses plug-ins depends on as a whole."""
DATA = frozenset({"path", "program"})
"""Options that name files a plug-in reads: a judge's folder, a file of rules, a program's files."""
_NAME = re.compile(r"([^\s:]+|.+\.py):[^\W\d]\w*")


def is_source(file: Path) -> bool:
    """Whether a file in a folder of code can affect a result: not if it is compiled or a document.

    Python writes a compiled module under a temporary name first, which is left out as well.
    """
    return file.suffix not in {".pyc", ".md"} and file.parent.name != "__pycache__"


def plugin_names(record: Any) -> Iterator[str]:
    """The paths that lead to plug-ins in a plain record of parameters.

    The options of a plug-in may name further ones at any depth, and ``system.spelling`` a function;
    a text that only looks like a path may be included.
    """
    named = (*_plugins(record), *(each.get("spelling") for each in _mappings(record)))
    return (text for own in named for text in texts_of(own) if _NAME.fullmatch(text))


def plugin_data(record: Any) -> tuple[Path, ...]:
    """The files and folders outside of ``plugins/`` that options of named plug-ins name, sorted."""
    own = PLUGINS.resolve()
    named = {Path(text) for each in _plugins(record) for text in _file_names(each["options"])}
    return tuple(
        sorted(
            path
            for path in named
            # A program such as python is found along PATH and is not one of the project's files.
            if path.exists() and not path.resolve().is_relative_to(own)
        )
    )


def _plugins(record: Any) -> Iterator[Mapping[str, Any]]:
    """The mappings that name a plug-in: a ``name`` and ``options``, and what a kind adds to them.

    Those in the options of another are parts of it.
    """
    for each in _mappings(record):
        if {"name", "options"} <= each.keys():
            yield each


def _mappings(record: Any) -> Iterator[Mapping[str, Any]]:
    """Every mapping of a plain record."""
    if isinstance(record, Mapping):
        yield record
    if isinstance(record, Mapping | list):
        for value in record.values() if isinstance(record, Mapping) else record:
            yield from _mappings(value)


def _file_names(options: Any) -> Iterator[str]:
    """The texts that options give as files, those of the parts among them."""
    for part in _mappings(options):
        for key in DATA & part.keys():
            given = part[key] if isinstance(part[key], list) else [part[key]]
            yield from (text for text in given if isinstance(text, str) and text)


def texts_of(record: Any) -> Iterator[str]:
    """Every text of a plain record, but for its keys."""
    if isinstance(record, str):
        yield record
    elif isinstance(record, Mapping | list):
        for value in record.values() if isinstance(record, Mapping) else record:
            yield from texts_of(value)


def plugin_sources(record: Any) -> tuple[Path, ...]:
    """The files outside of ``plugins/`` that named plug-ins are made of, sorted.

    Relative to the working folder, which is the project's, where they lie in it.
    """
    here, own = Path.cwd(), PLUGINS.resolve()
    found = {file for name in set(plugin_names(record)) for file in sources_of(name)}
    outside = (file for file in found if not file.is_relative_to(own))
    return tuple(
        sorted(file.relative_to(here) if file.is_relative_to(here) else file for file in outside)
    )


def source_digests(record: Any) -> dict[str, str]:
    """SHA-256 of each of those files, by its path."""
    return {path.as_posix(): file_digest(path) for path in plugin_sources(record)}
