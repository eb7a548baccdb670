"""Every key of params.yaml with a wrong type, a wrong range, and a slip of the pen."""

from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from cases import CHECK, Case, params
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from astra_core.config import Choice
from tasks.params.schema import Params

# What may be written for a type, and what the line must say of anything else.
RULES = {
    int: "input should be a valid integer",
    float: "input should be a valid number",
    bool: "input should be a valid boolean",
    str: "input should be a valid string",
    Path: "input should be a valid string",
    dict: "input should be an object",
    tuple: "input should be a valid array",
}
# A bound, the nearest value beyond it, and its words.
BOUNDS = {
    Ge: ("ge", -1, "greater than or equal to"),
    Gt: ("gt", 0, "greater than"),
    Le: ("le", 1, "less than or equal to"),
    Lt: ("lt", 0, "less than"),
}
CHOICES = frozenset(
    {
        ("executor",),
        ("system", "scorer"),
        ("system", "target"),
        ("rollouts", "sampler"),
        ("reward",),
        *(("training", kind) for kind in ("trainer", "algorithm", "optimizer", "schedule")),
    }
)


def cases() -> list[Case]:
    """The rows."""
    return [case for place, info in keys(Params) for case in _of_key(place, info)]


def keys(section: type[BaseModel], before: tuple[str, ...] = ()) -> Iterator[tuple[Any, FieldInfo]]:
    """Every key with the keys that lead to it, those of optional sections too."""
    for name, info in section.model_fields.items():
        place = (*before, name)
        yield place, info
        if _is_optional_plugin(info):
            continue
        for inner in (info.annotation, *get_args(info.annotation)):
            if get_origin(info.annotation) not in {dict, tuple} and _is_section(inner):
                yield from keys(inner, place)


def _is_optional_plugin(info: FieldInfo) -> bool:
    """Whether it may be null: without a name, every key below it is told of twice."""
    return set(_kinds(info.annotation)) == {Choice, NoneType}


def _of_key(place: tuple[str, ...], info: FieldInfo) -> Iterator[Case]:
    dotted = ".".join(place)
    kinds = [kind for kind in _kinds(info.annotation) if kind is not NoneType]
    if _is_section(kinds[0]):
        words = (f"{dotted}: input should be an object, got 5", "params.yaml")
        yield Case(f"{dotted}: a number for a section", CHECK, words, _set(place, 5))
        slip = f"{dotted}.nonsense is not a known key"
        if not _is_optional_plugin(info):
            yield Case(f"{dotted}: an unknown key", CHECK, (slip,), _set((*place, "nonsense"), 1))
        return
    wrong = [] if kinds[0] is dict else {"a": 1}
    rule = f"{dotted}: {RULES.get(kinds[0], 'input should be')}"
    yield Case(f"{dotted}: another type", CHECK, (rule, "see params.yaml"), _set(place, wrong))
    near = (f"{dotted}_ is not a known key", place[-1])
    slipped = (*place[:-1], f"{place[-1]}_")
    yield Case(f"{dotted}: a slip of the pen", CHECK, near, _set(slipped, 1))
    yield from _beyond(place, info, dotted)


def _beyond(place: tuple[str, ...], info: FieldInfo, dotted: str) -> Iterator[Case]:
    if get_origin(info.annotation) is Literal:
        words = (f"{dotted}: input should be '", "got 'nonsense'")
        yield Case(f"{dotted}: no such choice", CHECK, words, _set(place, "nonsense"))
    for bound in info.metadata:
        if type(bound) not in BOUNDS:
            continue
        attribute, step, words = BOUNDS[type(bound)]
        limit = getattr(bound, attribute)
        value = limit + step
        says = (f"{dotted}: input should be {words} {limit:g}", f"got {value!r}")
        yield Case(f"{dotted}: {value!r}", CHECK, says, _set(place, value))


def _set(place: tuple[str, ...], value: Any) -> Any:
    for before, name in reversed(list(enumerate(place))[1:]):
        # A choice must name something, or there would be two mistakes.
        named = {"name": "any"} if place[:before] in CHOICES else {}
        value = {**named, name: value}
    return params(**{place[0]: value})


def _kinds(annotation: Any) -> list[Any]:
    """The types that a value may have: of ``Path | None`` both."""
    origin = get_origin(annotation)
    if origin is Literal:
        return [Literal]
    if origin in {dict, tuple}:
        return [origin]
    if get_args(annotation):
        return [kind for inner in get_args(annotation) for kind in _kinds(inner)]
    return [annotation] if annotation is NoneType or isinstance(annotation, type) else []


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
