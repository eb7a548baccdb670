"""The code that decides a stage's result: what its module imports, and the plug-ins it may build.

Found in the import graph, whose imports inside functions count and those for type checkers do not.
Plug-ins are known to the code by their names only: a stage may build the kinds that its tracked
sections of params.yaml name.
"""

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.files import file_digest, folder_digest, record_digest
from astra_core.registry import BUILT_INS
from tasks.params.plugins import PLUGINS, is_source

if TYPE_CHECKING:
    from grimp import ImportGraph

ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("astra_core", "astra_parts", "tasks")
_REGISTRY = "astra_core.registry"
# An executor and a sink change no result.
_KINDS = {
    "system": ("target", "scorer"),
    "rollouts": ("sampler",),
    "reward": ("reward", "term"),
    "training": ("algorithm", "optimizer", "schedule", "trainer"),
    "evaluation": ("scorer",),
}
# They describe, show and record a stage, and change no result either.
_BESIDE = ("tasks.pipeline.stage", "tasks.machine.console", "tasks.tracking.sinks")
# Read as a file, and stored with the attacker.
_BY_PATH = {"tasks.tracking.registry.versions": "tasks.serving.attacker_pyfunc"}


@cache
def code_of(module: str, sections: tuple[str, ...]) -> tuple[str, ...]:
    """The files and folders of code behind a stage, relative to the project's root.

    A folder stands for all that is in it. Data in a folder of code belongs to the code there.

    ``module``: holds the stage's function; one of another package has no code that is watched.
    """
    graph = _graph()
    if module not in graph.modules:
        return ()
    reached = {module, *graph.find_upstream_modules(module)}
    kinds = {kind for section in sections for kind in _KINDS.get(section, ())}
    kinds = kinds if _REGISTRY in reached else set()
    for name in {path.partition(":")[0] for kind in kinds for path in BUILT_INS[kind].values()}:
        reached |= {name, *graph.find_upstream_modules(name)}
    imported = {_file(each) for name in reached for each in (name, *_packages_of(name))}
    files = set(filter(_runs, imported))
    own = [path for package in _PACKAGES for path in _fold(ROOT / package, files)]
    return (*own, *([PLUGINS.as_posix()] if kinds else []))


@cache
def code_digest(code: tuple[str, ...]) -> str:
    """The digest of what ``code_of`` found, for a project that has the package installed."""
    places = [ROOT / each for each in code if each != PLUGINS.as_posix()]
    own = [folder_digest(each, keep=is_source) for each in places if each.is_dir()]
    return record_digest([own, [file_digest(each) for each in places if each.is_file()]])


@cache
def _graph() -> "ImportGraph":
    """The import graph of the packages, without what is beside a stage's result."""
    import grimp

    graph = grimp.build_graph(*_PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    for name in _BESIDE:
        graph.remove_module(name)
    for importer, imported in _BY_PATH.items():
        graph.add_import(importer=importer, imported=imported)
    return graph


def _packages_of(module: str) -> tuple[str, ...]:
    """The packages that a module is in, whose ``__init__.py`` run before it."""
    parts = module.split(".")
    return tuple(".".join(parts[:count]) for count in range(1, len(parts)))


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _runs(file: Path) -> bool:
    """Whether a file is more than the docstring of a package."""
    return file.name != "__init__.py" or len(ast.parse(file.read_bytes()).body) > 1


def _fold(folder: Path, files: set[Path]) -> list[str]:
    """The files of a folder, or the folder alone where they are all of its sources."""
    sources = set(filter(_runs, folder.rglob("*.py")))
    if not sources & files:
        return []
    if sources <= files:
        return [folder.relative_to(ROOT).as_posix()]
    found = []
    has_code = bool(files & set(folder.glob("[!_]*.py")))
    for path in sorted(folder.iterdir()):
        if path in files or (has_code and path.is_dir() and _is_data(path)):
            found.append(path.relative_to(ROOT).as_posix())
        elif path.is_dir():
            found += _fold(path, files)
    return found


def _is_data(folder: Path) -> bool:
    """Whether a folder holds files and no code; one that a move left behind holds nothing."""
    files = [path for path in folder.rglob("*") if path.is_file() and is_source(path)]
    return bool(files) and not any(path.suffix == ".py" for path in files)
