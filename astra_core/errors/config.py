"""Why a configuration is invalid: one line for each key, in the project's own words."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt, shorten, suggestion

_MAX_BITS = 62
_MAX_LINES = 20
_SHOULD_BE = "input should be "
_KEY = re.compile(r"[a-z]\w*(\.\w+)*")

Place = tuple[int | str, ...]


def refuse_huge_numbers(value: Any, where: str) -> None:
    """Checks that every whole number fits 64 bits, as torch, pandas and DVC need them."""
    inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list | tuple) else inner
    for key, item in inner:
        if key is None or isinstance(key, bool | float):
            place = f"{where or 'params.yaml'} must have a name before each colon"
            msg = f"{place}, got {json.dumps(key)}; name the key, or take it out"
            raise ConfigurationError(msg)
        refuse_huge_numbers(item, f"{where}.{key}".strip("."))
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        msg = (
            f"{where} must be a number of at most 18 digits, got {excerpt(value)}; {_advice(where)}"
        )
        raise ConfigurationError(msg)


def explain(error: ValidationError, section: type[BaseModel], *, where: str, record: Any) -> str:
    """Every problem of a failed validation, one line for each key, in the project's own words."""
    found: dict[Place, list[Any]] = {}
    for problem in error.errors():
        found.setdefault(_place(problem, record), []).append(problem)
    lines = [_line(place, problems, section, where=where) for place, problems in found.items()]
    if len(lines) > _MAX_LINES:
        lines[_MAX_LINES - 1 :] = [f"and {len(lines) - _MAX_LINES + 1} more; see params.yaml"]
    return "\n".join(lines)


def _place(problem: Any, record: Any) -> Place:
    """The keys that lead to the problem, without the types of a union that pydantic puts there."""
    keys: list[int | str] = []
    value = record
    for part in problem["loc"]:
        if isinstance(value, dict) and part in map(str, value):
            value = next(item for key, item in value.items() if str(key) == part)
        elif isinstance(value, list | tuple) and isinstance(part, int):
            value = value[part]
        elif problem["type"] != "missing" or part != problem["loc"][-1]:
            continue
        keys.append(part)
    return tuple(keys)


def _line(place: Place, problems: Sequence[Any], section: type[BaseModel], *, where: str) -> str:
    """All problems at one key; a value of a union type breaks one rule per type."""
    shown = shorten(".".join([where, *map(str, place)]).strip("."), limit=120)
    kind, given = problems[0]["type"], problems[0]["input"]
    if kind == "extra_forbidden":
        known = sorted(_section_at(place[:-1], section).model_fields)
        hint = suggestion(str(place[-1]), known, otherwise=f"known keys are {known}")
        return f"{shown} is not a known key{hint}"
    if kind == "missing":
        return f"{shown} must be given; {_advice(shown)}"
    if kind == "json_invalid":
        shown = shown or "params.yaml"
        return f"{shown} must hold whole characters, got half of one, such as \\ud83d; correct it"
    rules = list(dict.fromkeys(_rule(problem["msg"]) for problem in problems))
    rule = " or ".join([rules[0], *(rule.removeprefix(_SHOULD_BE) for rule in rules[1:])])
    got = "" if ", got " in rule else f", got {excerpt(given)}"
    return f"{shown}: {rule}{got}; {_advice(shown)}"


def _advice(key: str) -> str:
    """The command that says what a key means."""
    return f"see 'astra params {key}'" if _KEY.fullmatch(key) else "see params.yaml"


def _rule(message: str) -> str:
    words = message.removeprefix("Value error, ")
    return words[0].lower() + words[1:]


def _section_at(place: Iterable[int | str], section: type[BaseModel]) -> type[BaseModel]:
    """The section at ``place``, also inside a mapping, a list or an optional."""
    for part in place:
        # A key of a mapping and an index of a list name no field; the section stays the same.
        annotation = getattr(section.model_fields.get(str(part)), "annotation", None)
        for inner in (annotation, *get_args(annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                section = inner
    return section
