"""A stage is one typed function; everything else about it is derived from the signature.

Parameters without a role are sections of params.yaml and their names are the keys. Parameters
with a role (``Dep``, ``Out``, ``Metric``, ``Plot``, ``Receipt``) are paths relative to the
project's root. From this come the entry in dvc.yaml, the command ``python -m tasks NAME`` and the
flow's task, while a test calls the plain function on a temporary folder.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, get_type_hints

from astra_core.errors import ConfigurationError
from tasks.params.schema import Params


class Role(Enum):
    """What a path is to DVC."""

    DEP = "deps"
    OUT = "outs"
    METRIC = "metrics"
    PLOT = "plots"
    RECEIPT = "receipts"


Dep = Annotated[Path, Role.DEP]
Out = Annotated[Path, Role.OUT]
Metric = Annotated[Path, Role.METRIC]
Plot = Annotated[Path, Role.PLOT]
# Proof of an effect outside the folder. Never cached: restoring the proof would skip the effect.
Receipt = Annotated[Path, Role.RECEIPT]

Function = TypeVar("Function", bound=Callable[..., Any])


class Report(Protocol):
    """What a stage returns."""

    def summary(self) -> str:
        """One line for the person who waits."""
        ...


@dataclass(frozen=True, slots=True)
class Stage:
    """What the pipeline knows of one stage."""

    name: str
    function: Callable[..., Report]
    params: tuple[str, ...]
    deps: tuple[Path, ...]
    outs: tuple[Path, ...]
    metrics: tuple[Path, ...]
    plots: tuple[Path, ...]
    receipts: tuple[Path, ...]
    code: tuple[str, ...]
    is_parallel: bool = False

    @property
    def description(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0].replace("``", "")

    @property
    def products(self) -> tuple[Path, ...]:
        """Every path the stage writes."""
        return (*self.outs, *self.metrics, *self.plots, *self.receipts)

    def run(self, params: Params) -> Report:
        """What the function returns for its sections of ``params`` and its default paths."""
        return self.function(**{name: getattr(params, name) for name in self.params})


def stage(
    *, code: tuple[str, ...], name: str | None = None, is_parallel: bool = False
) -> Callable[[Function], Function]:
    """A decorator that describes a stage and leaves its function as it is.

    Args:
        code: Files and folders whose edit makes the stage run again, as narrow as is honest.
        name: A noun; by default the name of the module.
        is_parallel: True when several processes can run it together, of which the first writes.

    Raises:
        ConfigurationError: When applied to a signature that breaks the rule above.
    """

    def describe(function: Function) -> Function:
        # Kept on the function, so that importing a stage changes no table anywhere.
        described = _described(function, code=code, name=name, is_parallel=is_parallel)
        vars(function)["stage"] = described
        return function

    return describe


def stage_of(function: Callable[..., Any]) -> Stage | None:
    """The description ``@stage`` left on a function, or nothing."""
    found = getattr(function, "stage", None)
    return found if isinstance(found, Stage) else None


def _described(
    function: Callable[..., Any], *, code: tuple[str, ...], name: str | None, is_parallel: bool
) -> Stage:
    hints = get_type_hints(function, include_extras=True)
    where = f"stage function {function.__name__}"
    if not hasattr(hints.get("return"), "summary"):
        msg = f"{where} must return a class with summary(), got {hints.get('return')}; annotate it"
        raise ConfigurationError(msg)
    sections: list[str] = []
    paths: dict[Role, list[Path]] = {role: [] for role in Role}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        role = _role_of(hint)
        if role is None:
            sections.append(_checked_section(parameter, hint, where))
        else:
            paths[role].append(_checked_path(parameter, where))
    known = [path for group in paths.values() for path in group]
    if len(known) != len(set(known)):
        msg = f"{where} must name each path once, got {sorted(map(str, known))}; drop the second"
        raise ConfigurationError(msg)
    return Stage(
        name=name or function.__module__.rpartition(".")[2],
        function=function,
        params=tuple(sections),
        code=code,
        is_parallel=is_parallel,
        deps=tuple(paths[Role.DEP]),
        outs=tuple(paths[Role.OUT]),
        metrics=tuple(paths[Role.METRIC]),
        plots=tuple(paths[Role.PLOT]),
        receipts=tuple(paths[Role.RECEIPT]),
    )


def _role_of(hint: Any) -> Role | None:
    """The role a parameter's annotation carries, if any."""
    roles = [entry for entry in getattr(hint, "__metadata__", ()) if isinstance(entry, Role)]
    return roles[0] if roles else None


def _checked_section(parameter: inspect.Parameter, hint: Any, where: str) -> str:
    """The parameter's name: a key of params.yaml, annotated with that section's type."""
    field = Params.model_fields.get(parameter.name)
    if field is None:
        msg = (
            f"{where}: parameter '{parameter.name}' must be a path with a role or one of the "
            f"sections {sorted(Params.model_fields)}; annotate it or add a section to Params"
        )
        raise ConfigurationError(msg)
    if hint != field.annotation:
        msg = (
            f"{where}: section '{parameter.name}' must be annotated {field.annotation}, "
            f"got {hint}; see tasks/params/schema.py"
        )
        raise ConfigurationError(msg)
    if parameter.default is not inspect.Parameter.empty:
        msg = (
            f"{where}: section '{parameter.name}' must have no default; params.yaml owns its values"
        )
        raise ConfigurationError(msg)
    return parameter.name


def _checked_path(parameter: inspect.Parameter, where: str) -> Path:
    """The parameter's default, a relative path inside the project."""
    path = parameter.default
    if not isinstance(path, Path) or path.is_absolute() or ".." in path.parts:
        shown = "no default" if path is inspect.Parameter.empty else repr(path)
        msg = (
            f"{where}: path '{parameter.name}' must have a default inside the project, "
            f"got {shown}; write {parameter.name}: Out = Path('data/...')"
        )
        raise ConfigurationError(msg)
    return path
