"""Plug-ins named by their file, ``path/to/file.py:Class``, and the modules they are loaded as.

Such a module is called ``astra_files.ROOT.NAME``: the folder above its outermost package, with
characters that a name cannot contain percent-encoded, and its dotted name from there. The name
alone leads to the file, so a process that unpickles an object finds its class, and files of the
same name in two folders are two modules. A neighbour can be imported relatively, or absolutely as
in a script; it then becomes a module of the same root, under names in ``sys.modules`` that nothing
else uses.
"""

import builtins
import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, unquote

from astra_core.errors import ConfigurationError
from astra_core.paths import found_at, is_file

PACKAGE = "astra_files"
"""The first part of the name of every module that is loaded from a named file."""
_SUFFIX = ".py"
_INIT = "__init__.py"
_LOOKED_INTO: set[str] = set()
"""The working folders that this module has put on Python's path."""


def is_file_name(name: str) -> bool:
    """Whether a plug-in's name is a file path and not an import path.

    >>> is_file_name("lab/mine.py:Mine"), is_file_name("lab.mine:Mine")
    (True, False)
    """
    path = name.rpartition(":")[0] or name
    return "/" in path or path.endswith(_SUFFIX)


def file_of(kind: str, name: str) -> tuple[Path, str]:
    """The file and the class that a plug-in's name means.

    Raises:
        ConfigurationError: There is no such file, or the name has no class.
    """
    written, _, attribute = name.rpartition(":")
    rule = got = ""
    if not written or not attribute:
        rule, got = "name a file and a class, as in 'lab/mine.py:Mine'", "one of them alone"
    elif not written.endswith(_SUFFIX):
        rule, got = f"name a file that ends in {_SUFFIX}", found_at(written)
    elif not is_file(written):
        rule, got = "name a file that exists", found_at(written)
    if rule:
        msg = f"{kind} '{name}' must {rule}, got {got}; paths are relative to the project"
        raise ConfigurationError(msg)
    return Path(written), attribute


def load_file(path: Path) -> ModuleType:
    """The module of a Python file; loaded once, however the path is spelled."""
    return importlib.import_module(module_name(path))


def module_name(path: Path) -> str:
    """The name of a file's module; the same in every process."""
    file = path.resolve()
    root = root_of(file)
    inner = file.parent if file.name == _INIT else file.with_name(file.name.removesuffix(_SUFFIX))
    return ".".join(map(_encoded, [PACKAGE, str(root), *inner.relative_to(root).parts]))


def root_of(file: Path) -> Path:
    """The first folder above a file that is no package."""
    root = file.parent
    while is_file(root / _INIT) and root != root.parent:
        root = root.parent
    return root


def spelled_module(name: str) -> str:
    """A module's name for people: of one loaded from a file, the path from the working folder."""
    if name.partition(".")[0] != PACKAGE:
        return name
    file = getattr(sys.modules.get(name), "__file__", None)
    path = Path(file) if file else _place(name)
    here = Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


def neighbour_in(folder: Path, top: str) -> Path | None:
    """What ``import top`` finds in a folder: a file, the ``__init__.py`` of a package, a folder."""
    candidates = (folder / top / _INIT, folder / f"{top}{_SUFFIX}")
    found = next((path for path in candidates if is_file(path)), None)
    outside = _spec_outside(top)
    if found is not None:
        # A module that anyone can import by this name, such as a package of ours, stays the same.
        origin = getattr(outside, "origin", None)
        return None if origin and Path(origin).resolve() == found.resolve() else found
    # As in Python, a folder without code yields to a real module found anywhere.
    return folder / top if outside is None and (folder / top).is_dir() else None


def look_here() -> None:
    """Adds the working folder, which is the project's, to Python's search path.

    ``python -m`` and a notebook look there by themselves; a command such as ``astra`` does not, and
    would not find ``plugins/`` as the stages do. If a process works in one project after another,
    only the last project's folder stays: otherwise the folders called ``plugins`` of several
    projects would be one package.
    """
    here = str(Path.cwd())
    for left in _LOOKED_INTO - {here}:
        _LOOKED_INTO.remove(left)
        if left in sys.path:
            sys.path.remove(left)
    if not {"", here} & set(sys.path):
        sys.path.insert(0, here)
        _LOOKED_INTO.add(here)


def _spec_outside(top: str) -> ModuleSpec | None:
    """The spec by which a module is found normally; imports nothing."""
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError):  # such as __main__, which has no spec
        return None


def _encoded(part: str) -> str:
    return part if part.isidentifier() else quote(part, safe="").replace(".", "%2E")


def _place(name: str) -> Path:
    """The path that a module's name means, without a suffix."""
    _, *parts = name.split(".")
    return Path(*map(unquote, parts))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules below ``astra_files`` by their names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's file or folder; None for all other names."""
        del path, target
        first, *parts = fullname.split(".")
        if first != PACKAGE:
            return None
        place = _place(fullname)
        if parts and not place.is_absolute():
            # A relative import beyond the root: none of our names leads there.
            return None
        if len(parts) > 1:
            for file in (place / _INIT, place.with_name(f"{place.name}{_SUFFIX}")):
                if is_file(file):
                    loader = _Loader(fullname, str(file))
                    return importlib.util.spec_from_file_location(fullname, file, loader=loader)
        if parts and not place.is_dir():
            return None
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(place)] if parts else []
        return spec


class _Loader(SourceFileLoader):
    """Loads a file whose absolute imports find its neighbours first."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the file, with its own ``__import__`` that lasts as long as its functions."""
        own = module.__package__ or ""
        root = ".".join(own.split(".")[:2])
        look = _neighbourly([own, root])
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": look}
        super().exec_module(module)


def _neighbourly(packages: Sequence[str]) -> Callable[..., Any]:
    """An ``__import__`` that looks into these packages before it looks everywhere."""

    def look(  # noqa: PLR0917 - as Python calls it
        name: str,
        module_globals: Any = None,
        module_locals: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        top = name.partition(".")[0]
        for package in packages if level == 0 else ():
            if neighbour_in(_place(package), top) is None:
                continue
            full = f"{package}.{name}"
            found = __import__(full, module_globals, module_locals, fromlist or (), 0)
            return found if fromlist else sys.modules[f"{package}.{top}"]
        return __import__(name, module_globals, module_locals, fromlist or (), level)

    return look


# Registered at import, so that a process that only unpickles finds the modules too; in first place,
# since Python's own finder would load the files without looking at their neighbours.
sys.meta_path.insert(0, _Finder())
