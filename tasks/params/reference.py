"""All keys of params.yaml with values, defaults and meanings, and their JSON schema for editors."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from astra_core.config import Choice, Section
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import suggestion
from astra_core.registry import BUILT_INS, find
from tasks.params.schema import Params

SCHEMA_FILE = Path("params/schema.json")
# Keys that name a plug-in of another kind than they are called.
_KINDS = {"probe_scorer": "scorer", "second_judge": "scorer", "sinks": "sink"}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of params.yaml."""

    name: str
    value: Any
    default: Any
    meaning: str
    is_given: bool

    def line(self) -> str:
        """The key as params.yaml has it, its default where that differs, and what it means."""
        default = "" if self.value == self.default else f"default {_text(self.default)}; "
        told = f"{default}{self.meaning}"
        return f"{self.name}: {_text(self.value)}" + (f"  # {told}" if told else "")


def keys_of(params: Params, record: Mapping[str, Any], section: str = "") -> list[Key]:
    """The keys below a section, in the order of the models; all of them without one.

    ``section``: dotted, such as ``training.kl``. What has no line of its own, such as an item of a
    list or a key below null, gives the nearest key or section that leads to it.

    Raises ConfigurationError if there is no such section, or a plug-in cannot be read.
    """
    found = [
        Key(name, _plain(value), _plain(default), meaning, is_given=_is_given(record, name))
        for name, value, default, meaning in _walk(params, Params(), section=section)
        if not section or f"{name}.".startswith(f"{section}.")
    ]
    above = section.rpartition(".")[0]
    if not found and above:
        return keys_of(params, record, above)
    if not found:
        all_keys = "'astra params --all' lists them"
        hint = suggestion(section, Params.model_fields, otherwise=all_keys)
        msg = f"SECTION must be a key of params.yaml or lead to one, got '{section}'{hint}"
        raise ConfigurationError(msg)
    return found


def _walk(
    own: Section, base: Section, *, above: str = "", section: str
) -> Iterator[tuple[str, Any, Any, str]]:
    """Name, value, default and meaning of the keys of one section and of those in it."""
    for name, field in type(own).model_fields.items():
        place, value, default = f"{above}{name}", getattr(own, name), getattr(base, name)
        if not f"{place}.".startswith(f"{section}."[: len(place) + 1] if section else ""):
            continue
        if isinstance(value, Choice):
            yield from _of_choice(place, value, field, default=default)
        elif isinstance(value, Section):
            below = default if isinstance(default, Section) else type(value)()
            yield from _walk(value, below, above=f"{place}.", section=section)
        else:
            yield place, value, default, _meaning(field)


def _of_choice(
    place: str, value: Choice, field: FieldInfo, *, default: Choice | None
) -> Iterator[tuple[str, Any, Any, str]]:
    """The keys of a plug-in's choice, and those of its options."""
    kind = _kind(place.rpartition(".")[2])
    told = f"{field.description or ''} {' | '.join(BUILT_INS[kind])} | package.module:Class".strip()
    yield f"{place}.name", value.name, default.name if default else None, told
    for name, extra in type(value).model_fields.items():
        if name not in Choice.model_fields:
            yield f"{place}.{name}", getattr(value, name), extra.default, _meaning(extra)
    # A left-out option of an algorithm for turns has another value than the class's own.
    like = default.options if default is not None and default.name == value.name else {}
    bare = value.model_copy(update={"options": like})
    try:
        own, plain = find(kind, value).options, find(kind, bare).options
    except ConfigurationError:  # an option that has no default
        own = plain = find(kind, value).options
    for name, option in type(own).model_fields.items():
        found = getattr(own, name), getattr(plain, name)
        yield f"{place}.options.{name}", *found, _meaning(option)


def _kind(name: str) -> str:
    return _KINDS.get(name, name)


def _meaning(field: FieldInfo) -> str:
    kinds = (field.annotation, *get_args(field.annotation))
    words = [str(word) for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    return " ".join(filter(None, (field.description, " | ".join(words))))


def _plain(value: Any) -> Any:
    """The value as JSON holds it."""
    if isinstance(value, Section):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _is_given(record: Any, name: str) -> bool:
    """Whether a record names the key; a choice may be its name alone."""
    for part in name.split("."):
        if isinstance(record, str):
            return part == "name"
        if not isinstance(record, Mapping) or part not in record:
            return False
        record = record[part]
    return True


def schema_text() -> str:
    """The JSON schema of params.yaml, by which an editor completes, explains and checks keys."""
    schema = Params.model_json_schema()
    definitions = schema["$defs"]
    for name in [each for each in definitions if each.endswith("Choice")]:
        definitions[name].pop("required", None)  # without a name it is the one by default
        definitions[name] = {"anyOf": [{"type": "string"}, definitions[name]]}
    definitions["ModelSource"]["properties"]["version"]["anyOf"].append({"type": "integer"})
    for seed in ("model_seed", "training_seed"):
        whole = schema["properties"][seed]
        schema["properties"][seed] = {"anyOf": [whole, {"type": "null"}], "default": None}
    for owner in (schema, *definitions.values()):
        for name, field in owner.get("properties", {}).items():
            if _kind(name) in BUILT_INS:
                field["examples"] = list(BUILT_INS[_kind(name)])
    return json.dumps(schema, indent=1) + "\n"


def schema_drift(path: Path = SCHEMA_FILE) -> str | None:
    """One line if the file is not what ``schema_text`` says; None if it is."""
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == schema_text():
        return None
    return (
        f"{path} must be the schema of params.yaml's keys, got another or none; run 'astra render'"
    )
