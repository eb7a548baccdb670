"""Every key of params.yaml with a wrong type, a wrong range, and a slip of the pen."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
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
KINDS = (
    "a number for a section",
    "an unknown key",
    "another type",
    "a slip of the pen",
    "no such choice",
    "beyond a bound",
)
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


@dataclass(frozen=True)
class Mistake:
    """One key of params.yaml, written wrongly.

    Attributes:
        kind: Of mistake.
        record: What params.yaml holds; the other sections have their defaults.
        says: What the line must hold.
    """

    kind: str
    record: dict[str, Any]
    says: tuple[str, ...]


def mistakes() -> list[Mistake]:
    """The rows."""
    return [mistake for place, info in keys(Params) for mistake in _of_key(place, info)]


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


def _of_key(place: tuple[str, ...], info: FieldInfo) -> Iterator[Mistake]:
    dotted = ".".join(place)
    kinds = [kind for kind in _kinds(info.annotation) if kind is not NoneType]
    if _is_section(kinds[0]):
        words = (f"{dotted}: input should be an object, got 5", f"see 'astra params {dotted}'")
        yield Mistake("a number for a section", _set(place, 5), words)
        slip = f"{dotted}.nonsense is not a known key"
        if not _is_optional_plugin(info):
            yield Mistake("an unknown key", _set((*place, "nonsense"), 1), (slip,))
        return
    wrong = [] if kinds[0] is dict else {"a": 1}
    rule = f"{dotted}: {RULES.get(kinds[0], 'input should be')}"
    yield Mistake("another type", _set(place, wrong), (rule, f"see 'astra params {dotted}'"))
    near = (f"{dotted}_ is not a known key", place[-1])
    slipped = (*place[:-1], f"{place[-1]}_")
    yield Mistake("a slip of the pen", _set(slipped, 1), near)
    yield from _beyond(place, info, dotted)


def _beyond(place: tuple[str, ...], info: FieldInfo, dotted: str) -> Iterator[Mistake]:
    if get_origin(info.annotation) is Literal:
        words = (f"{dotted}: input should be '", "got 'nonsense'")
        yield Mistake("no such choice", _set(place, "nonsense"), words)
    for bound in info.metadata:
        if type(bound) not in BOUNDS:
            continue
        attribute, step, words = BOUNDS[type(bound)]
        limit = getattr(bound, attribute)
        value = limit + step
        says = (f"{dotted}: input should be {words} {limit:.12g}", f"got {value!r}")
        yield Mistake("beyond a bound", _set(place, value), says)


def _set(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    for before, name in reversed(list(enumerate(place))[1:]):
        # A choice must name something, or there would be two mistakes.
        named = {"name": "any"} if place[:before] in CHOICES else {}
        value = {**named, name: value}
    return {place[0]: value}


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
