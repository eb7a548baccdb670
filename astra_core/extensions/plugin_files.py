"""Plug-ins named by their file, ``path/to/file.py:Class``, and the modules they are loaded as.

Such a module is called ``astra_files.DIGEST.NAME``: a digest of the folder above its outermost
package, and its dotted name from there. So files of one name in two folders are two modules, and a
file imports its neighbours relatively (``from .helpers import X``), whether or not they are in a
package.
"""

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import error_line, note_plugin
from astra_core.files import record_digest
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


def load_named(kind: str, name: str, *, built_in: str | None = None, form: str = "") -> Any:
    """The attribute of a file or module that a plug-in's name means.

    Args:
        name: As in params.yaml: ``package.module:Class`` or ``path/to/file.py:Class``.
        built_in: The import path of a part of our own with a short name.

    Raises ConfigurationError if it cannot be imported.
    """
    file = None
    path, _, attribute = (built_in or name).partition(":")
    if built_in is None:
        if is_file_name(name):
            file, attribute = file_of(kind, name)
        note_plugin(PACKAGE if file else name)
    try:
        if file is None:
            look_here()
            return getattr(importlib.import_module(path), attribute)
        module = load_file(file)
        if not hasattr(module, attribute):
            # Python's message would have the module's internal name, which the user never wrote.
            msg = f"'{file}' has no attribute '{attribute}'"
            raise AttributeError(msg)  # noqa: TRY301 - told as what a module raises is
        return getattr(module, attribute)
    except (Exception, SystemExit) as error:  # a plug-in may raise anything when imported
        msg = f"{kind} '{name}' must be importable{form}, got {error_line(error)}; check the path"
        raise ConfigurationError(msg) from error


def file_of(kind: str, name: str) -> tuple[Path, str]:
    """The file and the class that a plug-in's name means.

    Raises ConfigurationError if there is no such file, or the name has no class.
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
    file = path.resolve()
    root = root_of(file)
    within = f"{PACKAGE}.{record_digest(str(root))[:16]}"
    _register(PACKAGE)
    _register(within, str(root))
    inner = file.parent if file.name == _INIT else file.with_name(file.name.removesuffix(_SUFFIX))
    *packages, own = inner.relative_to(root).parts
    # What was written a moment ago, as in a notebook, is found too.
    importlib.invalidate_caches()
    package = importlib.import_module(".".join([within, *packages])).__name__
    # The file may have a name that no import statement can spell.
    name = f"{package}.{own.replace('.', '%2E')}"
    if name not in sys.modules:
        _run(name, file)
    return sys.modules[name]


def _register(name: str, *folders: str) -> None:
    """Makes a package whose modules are looked for in these folders."""
    if name not in sys.modules:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = list(folders)
        sys.modules[name] = importlib.util.module_from_spec(spec)


def _run(name: str, file: Path) -> None:
    """Runs a file as a module of this name."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None  # noqa: S101  # for mypy: the file ends in .py
    assert spec.loader is not None  # noqa: S101
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[name])
    except BaseException as error:
        del sys.modules[name]
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and is_file(file.with_name(f"{missing}{_SUFFIX}")):
            msg = f"{error}; a file beside it is imported by 'from . import {missing}'"
            raise ModuleNotFoundError(msg) from error
        raise


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
    if file is None:
        return name
    path, here = Path(file), Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix()


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
