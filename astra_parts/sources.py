"""The files of code behind a plug-in's name: its own, those of its packages and what it imports.

They are found by reading import statements, without running any of them. What a plug-in imports by
other means, such as ``importlib``, is not found, nor is a file that it only reads.
"""

import ast
import importlib.util
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from astra_core.extensions.plugin_files import is_file_name, look_here, root_of
from astra_core.paths import is_file

_OUR_ROOT = Path(__file__).resolve().parents[1]
_OURS = tuple(_OUR_ROOT / name for name in ("astra_core", "astra_parts", "tasks", "flows"))
_STANDARD, _INSTALLED = (
    tuple({Path(sysconfig.get_path(name)).resolve() for name in names})
    for names in (("stdlib", "platstdlib"), ("purelib", "platlib"))
)


@dataclass(frozen=True, slots=True)
class _Source:
    """A file of code.

    ``package``: the installed package that the plug-in is a part of; empty for none.
    """

    file: Path
    package: str


def sources_of(name: str) -> tuple[Path, ...]:
    """The files of code that a plug-in is made of, sorted and resolved; empty for a built-in.

    Imports are followed into the project's own code and any folder on Python's path, but not into
    this package or installed ones, unless the plug-in itself is in an installed one.
    """
    place, _, attribute = name.rpartition(":")
    if not place or not attribute or place == "__main__":
        return ()
    look_here()
    waiting = list(_sources_of_name(place, is_path=is_file_name(name)))
    seen: set[Path] = set()
    while waiting:
        source = waiting.pop()
        if source.file not in seen:
            seen.add(source.file)
            waiting.extend(_imports_of(source))
    return tuple(sorted(seen))


def _sources_of_name(place: str, *, is_path: bool) -> Iterator[_Source]:
    """The file that a plug-in's name leads to, and the ``__init__.py`` of its packages."""
    if not is_path:
        top = place.partition(".")[0]
        yield from _outside(place.split("."), package=top)
    elif is_file(place):
        file = Path(place).resolve()
        root = root_of(file)
        for folder in file.parents:
            if folder == root:
                break
            yield _Source(folder / "__init__.py", package="")
        yield _Source(file, package="")


def _imports_of(source: _Source) -> Iterator[_Source]:
    """The files that the import statements of a file lead to."""
    try:
        tree = ast.parse(source.file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        # The error is reported when the file is loaded.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _outside(alias.name.split("."), package=source.package)
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _from(source, [*parts, alias.name], level=node.level)


def _from(source: _Source, parts: list[str], *, level: int) -> Iterator[_Source]:
    if not level:
        yield from _outside(parts, package=source.package)
    elif level <= len(source.file.parents):
        yield from _below(source.file.parents[level - 1], parts, package=source.package)


def _outside(parts: list[str], *, package: str) -> Iterator[_Source]:
    """The files that a normal import of a dotted name finds."""
    try:
        spec = importlib.util.find_spec(parts[0])
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    folders = [Path(folder).parent for folder in spec.submodule_search_locations or ()]
    if not folders and spec.origin and is_file(spec.origin):
        folders = [Path(spec.origin).parent]
    for folder in folders:
        place = folder.resolve()
        is_installed = any(map(place.is_relative_to, _INSTALLED))
        is_standard = not is_installed and any(map(place.is_relative_to, _STANDARD))
        if not is_standard and (not is_installed or parts[0] == package):
            found = list(_below(folder, parts, package=package))
            yield from found
            if found:
                # A package in several folders: as in Python, the first with the module counts.
                return


def _below(folder: Path, parts: list[str], *, package: str) -> Iterator[_Source]:
    """The files that run when a dotted name below a folder is imported, as far as it is found."""
    for part in parts:
        files = [folder / part / "__init__.py", folder / f"{part}.py"]
        found = next((file.resolve() for file in files if is_file(file)), None)
        if found is not None and not any(map(found.is_relative_to, _OURS)):
            yield _Source(found, package=package)
        folder /= part
