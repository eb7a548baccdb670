"""A stage is one typed function; everything else about it is derived from the signature.

It takes two frozen dataclasses, ``f(params: SomeParams, files: SomeFiles = SomeFiles())``. The
fields of the first are sections of params.yaml and their names are the keys; those of the second
are paths relative to the project's root, each with a role (``Dep``, ``Out``, ``Metric``, ``Plot``,
``Receipt``) and a default. A stage that works with plug-ins takes ``setup: SomeSetup`` in place of
the sections: ``SomeSetup.of(params)`` builds it, once, before the stage begins. From this come the
entry in dvc.yaml, the command ``python -m tasks NAME`` and the flow's task, while a test calls the
plain function on a temporary folder.
"""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, get_type_hints

from pydantic import BaseModel

from astra_core.errors import ConfigurationError
from tasks.params.schema import Params
from tasks.pipeline.stage_code import code_of


class Role(Enum):
    """The role that a path has in DVC."""

    DEP = "deps"
    OUT = "outs"
    METRIC = "metrics"
    PLOT = "plots"
    RECEIPT = "receipts"


Dep = Annotated[Path, Role.DEP]
Out = Annotated[Path, Role.OUT]
Metric = Annotated[Path, Role.METRIC]
Plot = Annotated[Path, Role.PLOT]
# Proof of an effect outside the folder. DVC does not know it, because restoring the proof would
# skip the effect.
Receipt = Annotated[Path, Role.RECEIPT]

Value = TypeVar("Value")


class _Untracked:
    """The mark of a section that cannot change the result."""


# For a section about where a result is recorded: DVC does not track it, and no run key includes it.
Untracked = Annotated[Value, _Untracked]

Function = TypeVar("Function", bound=Callable[..., Any])
Sections = TypeVar("Sections")


class Report(Protocol):
    """What a stage returns."""

    def summary(self) -> str:
        """One line about the result for a person."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What the pipeline knows about one stage.

    Attributes:
        function: Takes what ``prepare`` gives and, by default, its own files.
        prepare: Builds what the function takes from its sections; None gives it the sections.
    """

    name: str
    function: Callable[..., Report]
    params_class: type[Any]
    params: tuple[str, ...]
    deps: tuple[Path, ...]
    outs: tuple[Path, ...]
    metrics: tuple[Path, ...]
    plots: tuple[Path, ...]
    receipts: tuple[Path, ...]
    is_parallel: bool = False
    prepare: Callable[[Any], Any] | None = None

    @property
    def description(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].replace("``", "")

    @property
    def code(self) -> tuple[str, ...]:
        """Files and folders; an edit there makes the stage run again."""
        return code_of(self.function.__module__, self.params)

    @property
    def products(self) -> tuple[Path, ...]:
        """Every path the stage writes."""
        return (*self.outs, *self.metrics, *self.plots, *self.receipts)

    def run(self, params: Params) -> Report:
        """The function's result for its sections of ``params`` and its default paths."""
        sections = sections_for(self.params_class, params)
        return self.function(self.prepare(sections) if self.prepare else sections)


def sections_for(params_class: type[Sections], params: Params) -> Sections:
    """The sections of ``params`` that a stage's parameter class names."""
    return params_class(**{name: getattr(params, name) for name in get_type_hints(params_class)})


def plain_sections(params: Any) -> dict[str, Any]:
    """The tracked sections of a stage's parameters as JSON, by name: what decides its result."""
    tracked = {name: getattr(params, name) for name in _tracked_fields(type(params))}
    return {
        name: section.model_dump(mode="json") if isinstance(section, BaseModel) else section
        for name, section in tracked.items()
    }


def stage(*, name: str | None = None, is_parallel: bool = False) -> Callable[[Function], Function]:
    """A decorator that describes a stage and leaves its function unchanged.

    Args:
        name: A noun; by default the name of the module.
        is_parallel: True when several processes can run it together; the first one writes.

    Raises ConfigurationError when applied to a signature that breaks the rule above.
    """

    def describe(function: Function) -> Function:
        first, files_class = _classes(function)
        takes_setup = "setup" in inspect.signature(function).parameters
        prepare = first.of if takes_setup else None
        params_class = get_type_hints(prepare)["params"] if prepare else first
        where = f"stage function {function.__name__}"
        paths = _paths_of(files_class, where)
        # Kept on the function, so that importing a stage changes no table anywhere.
        vars(function)["stage"] = Stage(
            name=name or function.__module__.rpartition(".")[2],
            function=function,
            params_class=params_class,
            prepare=prepare,
            params=_sections_of(params_class, where),
            is_parallel=is_parallel,
            **{role.value: tuple(paths[role]) for role in Role},
        )
        return function

    return describe


def stage_of(function: Callable[..., Any]) -> Stage | None:
    """The description that ``@stage`` left on a function; None without one."""
    found = getattr(function, "stage", None)
    return found if isinstance(found, Stage) else None


def _classes(function: Callable[..., Any]) -> tuple[type[Any], type[Any]]:
    """The two classes that a stage's signature names."""
    where = f"stage function {function.__name__}"
    hints = get_type_hints(function, include_extras=True)
    result = hints.get("return")
    msg = f"{where} must return a class with summary(), got {result}; annotate it"
    _require(hasattr(result, "summary"), msg)
    found = inspect.signature(function).parameters
    msg = (
        f"{where} must take params and files, got {[*found]}; "
        "write (params: SomeParams, files: SomeFiles = SomeFiles()), or setup: SomeSetup with "
        "SomeSetup.of(params: SomeParams, files: SomeFiles)"
    )
    _require([*found] in (["params", "files"], ["setup", "files"]), msg)
    setup = hints.get("setup")
    msg = f"{where}: 'setup' must have of(params, files), got {setup}; write it"
    _require("setup" not in found or hasattr(setup, "of"), msg)
    for name in found:
        msg = f"{where}: '{name}' must be a frozen dataclass, got {hints.get(name)}; make it one"
        _require(_is_frozen(hints.get(name)), msg)
    files_class = hints["files"]
    msg = f"{where}: 'files' must have a default; write files: SomeFiles = SomeFiles()"
    _require(isinstance(found["files"].default, files_class), msg)
    return hints[next(iter(found))], files_class


def _require(holds: bool, msg: str) -> None:
    if not holds:
        raise ConfigurationError(msg)


def _is_frozen(hint: Any) -> bool:
    # The arguments with which a dataclass was made.
    made = getattr(hint, "__dataclass_params__", None)
    return isinstance(hint, type) and made is not None and bool(made.frozen)


def _sections_of(params_class: type[Any], where: str) -> tuple[str, ...]:
    """The tracked sections of a class all of whose fields are sections."""
    hints = get_type_hints(params_class)
    for each in fields(params_class):
        _check_section(each, hints[each.name], where)
    return _tracked_fields(params_class)


def _paths_of(files_class: type[Any], where: str) -> dict[Role, list[Path]]:
    """The default paths of a class of files, by role."""
    hints = get_type_hints(files_class, include_extras=True)
    paths: dict[Role, list[Path]] = {role: [] for role in Role}
    for each in fields(files_class):
        paths[_role_of(each, hints[each.name], where)].append(_path_of(each, where))
    known = [path for group in paths.values() for path in group]
    msg = f"{where} must name each path once, got {sorted(map(str, known))}; drop the second"
    _require(len(known) == len(set(known)), msg)
    return paths


def _check_section(each: "Field[Any]", hint: Any, where: str) -> None:
    """Checks that a field is named and annotated as a section of params.yaml."""
    msg = (
        f"{where}: field '{each.name}' of its params must be one of the sections "
        f"{sorted(Params.model_fields)}; rename it or add a section to Params"
    )
    _require(each.name in Params.model_fields, msg)
    wanted = Params.model_fields[each.name].annotation
    section = f"{where}: section '{each.name}' must"
    msg = f"{section} be annotated {wanted}, got {hint}; see tasks/params/schema.py"
    _require(hint == wanted, msg)
    has_default = each.default is not MISSING or each.default_factory is not MISSING
    _require(not has_default, f"{section} have no default; params.yaml owns its values")


def _role_of(each: "Field[Any]", hint: Any, where: str) -> Role:
    """The role in a path's annotation."""
    roles = [entry for entry in getattr(hint, "__metadata__", ()) if isinstance(entry, Role)]
    msg = (
        f"{where}: field '{each.name}' of its files must be a path with a role, got {hint}; "
        f"write {each.name}: Out = Path('data/...')"
    )
    _require(bool(roles), msg)
    return roles[0]


def _path_of(each: "Field[Any]", where: str) -> Path:
    """The field's default, a relative path inside the project."""
    path = each.default
    if not isinstance(path, Path) or path.is_absolute() or ".." in path.parts:
        shown = "no default" if path is MISSING else repr(path)
        msg = (
            f"{where}: path '{each.name}' must have a default inside the project, "
            f"got {shown}; write {each.name}: Out = Path('data/...')"
        )
        raise ConfigurationError(msg)
    return path


def _tracked_fields(params_class: type[Any]) -> tuple[str, ...]:
    hints = get_type_hints(params_class, include_extras=True)
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return tuple(name for name in hints if _Untracked not in marks[name])
