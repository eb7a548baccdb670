"""``--set training.lr=1e-4`` and ``--preset NAME``: other values of params.yaml.

``change_params`` checks the whole and writes them into the file, whose comments are kept; under
``as_if`` a command that changes nothing reads them. A preset is a file ``params/NAME.yaml`` beside
params.yaml that is laid over it, key by key; a choice, which has a ``name``, replaces the whole old
choice. An assignment of another ``name`` keeps the options that the new plug-in has too.
"""

import copy
import io
import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt, shorten
from astra_core.files import write_text
from astra_core.registry import BUILT_INS, NoOptions, resolve
from flows.usage import library
from flows.values import read_value
from tasks.params.checks import check_params
from tasks.params.migration import migrate, refuse_earlier
from tasks.params.overlay import laid_over, overrides, owner_of
from tasks.params.schema import PARAMS_FILE, Params, read_record
from tasks.params.yaml_files import load_yaml, read_yaml_text

PRESETS = "params"
"""The folder of presets, beside params.yaml and in the package, whose own an upgrade renews."""
_HEADING = re.compile(r"^((?:#.*\n)+)(\w+):", re.MULTILINE)


def change_params(
    assignments: Sequence[str],
    path: Path = PARAMS_FILE,
    *,
    preset: str | None = None,
    before: Path | None = None,
) -> list[str]:
    """One line for each value that changed; the file is written only if the whole is valid.

    Args:
        assignments: Each ``section.key=value``, the value as YAML writes it.
        preset: A name in the folder ``params``, laid over the file before the assignments; one line
            says what it changed.

    Raises ConfigurationError if an assignment or the preset cannot be read, or params.yaml would
    not be usable.
    """
    changed = _change(assignments, path, preset)
    check_params(changed.params, is_kept=True)
    if changed.lines:
        if before is not None:
            before.parent.mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(path, before)
        write_text(changed.text, path, is_shared=True)
    return changed.lines


def migrate_params(path: Path = PARAMS_FILE, *, before: Path) -> list[str]:
    """One line for each key of an earlier version that was rewritten; comments are kept."""
    yaml = _round_trip_yaml()
    text = read_yaml_text(path)
    load_yaml(text, subject=str(path), way_out="correct that line")
    record = yaml.load(text)
    lines = list(migrate(record)) if isinstance(record, dict) else []
    if lines:
        before.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(path, before)
        write_text(_with_headings(_dump(record, yaml), text), path, is_shared=True)
    return lines


def assignments_of(values: Mapping[str, Any]) -> list[str]:
    """``section.key=value`` for each value by its dotted key; JSON is YAML."""
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]


@contextmanager
def as_if(
    assignments: Sequence[str], path: Path = PARAMS_FILE, *, preset: str | None = None
) -> Iterator[None]:
    """A scope in which all that reads params.yaml finds these values; none is checked yet.

    ``preset``: of the folder ``params``, laid over the file before the assignments.

    Raises ConfigurationError if an assignment or the preset cannot be read, or its key does not
    allow the value.
    """
    changed = _change(assignments, path, preset)
    values: dict[str, Any] = {}
    for key in changed.keys:
        owner, last = owner_of(changed.record, key)
        values[key] = owner[last]
    with laid_over(values):
        yield


def changed_params(
    assignments: Sequence[str],
    path: Path = PARAMS_FILE,
    *,
    sections: Collection[str],
    preset: str | None = None,
) -> Params:
    """The parameters with these values; the file stays the same.

    Plug-ins and named files are not checked yet: ``check_params`` may load torch, whose environment
    must be set before.

    Raises ConfigurationError if an assignment cannot be read, is for another section, or has a
    value that its key does not allow.
    """
    for text in assignments:
        name = text.partition("=")[0].partition(".")[0].strip()
        if name not in sections and name in Params.model_fields:
            msg = (
                f"--set must change {', '.join(sections)} here, got {name}, which earlier stages "
                "read; change it with 'astra run --set' or in params.yaml"
            )
            raise ConfigurationError(msg)
    return _change(assignments, path, preset).params


def examination_params(assignments: Sequence[str], preset: str | None = None) -> Params:
    """The parameters of an examination with these values, in a process that is set up for them."""
    from dataclasses import fields

    from tasks.figures.examination import EvaluationParams
    from tasks.machine.environment import set_up_process

    sections = tuple(field.name for field in fields(EvaluationParams))
    params = changed_params(assignments, sections=sections, preset=preset)
    set_up_process(params)
    return params


def folder_or_choice(path: Path) -> Path | Choice:
    """What a command takes as a model: a folder, or a YAML file with name and options of a target.

    Raises ConfigurationError if the file cannot be read as such.
    """
    if path.is_dir():
        return path
    record = load_yaml(read_yaml_text(path), subject=str(path), way_out="correct that line")
    return Choice.read(record, where=str(path))


def planned_params(
    assignments: Sequence[str], path: Path = PARAMS_FILE, *, preset: str | None = None
) -> tuple[str, Params]:
    """The text of params.yaml with these values, and its sections, checked except for plug-ins.

    ``preset``: of the folder ``params``, laid over the file before the assignments.

    Raises ConfigurationError if an assignment cannot be read, or its key does not allow the value.
    """
    # Under ``as_if``, as of a sweep with a preset, its values come first.
    changed = _change([*assignments_of(overrides()), *assignments], path, preset)
    return changed.text, changed.params


def _preset_files(path: Path) -> dict[str, Path]:
    """The file of each preset; one beside params.yaml comes before the package's own."""
    places = (library() / PRESETS, path.parent / PRESETS)
    return {file.stem: file for place in places for file in place.glob("*.yaml")}


@dataclass(frozen=True, slots=True)
class _Changed:
    """The result of laying other values over params.yaml.

    ``record``: ``text`` as plain values; ``keys``: those that differ.
    """

    text: str
    record: dict[str, Any]
    keys: list[str]
    lines: list[str]
    params: Params


def _change(assignments: Sequence[str], path: Path, preset: str | None = None) -> _Changed:
    # Without this check, tags and repeated keys would be accepted.
    plain = read_record(path)
    before = read_yaml_text(path)
    if preset is None and not assignments:
        return _Changed(before, plain, [], [], Params.read(plain, where=""))
    yaml = _round_trip_yaml()
    # A copy would write the keys of a merge (<<) out.
    record = yaml.load(before) if "<<" in before else copy.deepcopy(_read_with_comments(before))
    keys, lines = ([], []) if preset is None else _lay_over(record, preset, path)
    for text in assignments:
        line = _assign(record, text, yaml)
        if line is not None:
            keys.append(text.partition("=")[0].strip())
            lines.append(line)
            foreign = _drop_foreign_options(record, keys[-1])
            if foreign:
                keys.append(f"{keys[-1].removesuffix('.name')}.options")
                lines.append(f"{keys[-1]}: without {', '.join(foreign)}, not known there")
    text = _with_headings(_dump(record, yaml), before)
    plain = load_yaml(text, subject=str(path), way_out="see --set")
    refuse_earlier(plain)
    return _Changed(text, plain, keys, lines, Params.read(plain, where=""))


@lru_cache(maxsize=1)
def _read_with_comments(text: str) -> Any:
    """The record of params.yaml with its comments; a sweep lays many values over the same one."""
    return _round_trip_yaml().load(text)


def _lay_over(record: Any, preset: str, path: Path) -> tuple[list[str], list[str]]:
    """Lays a preset over ``record``: the keys whose values changed, and lines that say so."""
    known = _preset_files(path)
    if preset not in known:
        msg = (
            f"--preset must name a file of the folder {PRESETS}, got {excerpt(preset)}; "
            f"known are {sorted(known)}"
        )
        raise ConfigurationError(msg)
    file = known[preset]
    found = load_yaml(read_yaml_text(file), subject=str(file), way_out="correct that line")
    if not isinstance(found, Mapping):
        msg = f"{file} must hold keys of params.yaml, got {type(found).__name__}; correct it"
        raise ConfigurationError(msg)
    keys = list(_overlaid(record, found, ""))
    told = f"preset '{preset}' ({PRESETS}/{preset}.yaml) sets {', '.join(keys)}"
    return keys, [told] if keys else []


def _overlaid(old: Any, new: Mapping[str, Any], place: str) -> Iterator[str]:
    """The keys whose values changed when ``new`` is written into ``old``."""
    for key, value in new.items():
        before = old.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        if both and "name" not in value:
            yield from _overlaid(before, value, f"{place}{key}.")
        elif key not in old or before != value:
            if both:
                # In its place, so that the comments beside what stays do.
                for gone in [name for name in before if name not in value]:
                    del before[gone]
                before.update(_quote(value))
            else:
                old[key] = _quote(value)
            yield f"{place}{key}"


def _assign(record: Any, assignment: str, yaml: YAML) -> str | None:
    """The change made in ``record``; None if it already had the value."""
    key, equals, written = assignment.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        got = excerpt(assignment)
        msg = f"--set must read section.key=value, got {got}; as in --set training.lr=1e-4"
        raise ConfigurationError(msg)
    value = read_value(key, written, yaml)
    owner, last = owner_of(record, key)
    old = owner.get(last)
    if last in owner and old == value and isinstance(old, bool) == isinstance(value, bool):
        return None
    told = f"{_one_line(old, yaml) if last in owner else 'not set'} -> {_one_line(value, yaml)}"
    owner[last] = _quote(value)
    return f"{key}: {told}"


def _drop_foreign_options(record: Any, key: str) -> list[str]:
    """The options that were removed because the plug-in that ``key`` now names has none such."""
    place, _, last = key.rpartition(".")
    kind = place.rpartition(".")[2]
    if last != "name" or kind not in BUILT_INS:
        return []
    choice = owner_of(record, key)[0]
    options = choice.get("options")
    if not isinstance(options, dict) or not isinstance(choice["name"], str):
        return []
    known = getattr(resolve(kind, choice["name"]), "Options", NoOptions).model_fields
    foreign = [name for name in options if name not in known]
    for name in foreign:
        del options[name]
    return foreign


def _quote(value: Any) -> Any:
    """The value with quotes around texts with a colon: DVC's parser asks for them in brackets."""
    if isinstance(value, dict):
        value |= {key: _quote(own) for key, own in value.items()}
    elif isinstance(value, list):
        value[:] = [_quote(own) for own in value]
    elif type(value) is str and ":" in value:
        return DoubleQuotedScalarString(value)
    return value


def _round_trip_yaml() -> YAML:
    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096  # never wrap a user's line
    # By default, a null would be written as nothing.
    yaml.representer.add_representer(
        type(None), lambda r, _: r.represent_scalar("tag:yaml.org,2002:null", "null")
    )
    return yaml


def _dump(record: Any, yaml: YAML) -> str:
    stream = io.StringIO()
    yaml.dump(record, stream)
    return stream.getvalue()


def _with_headings(text: str, before: str) -> str:
    """The text with the comments above its sections, which go with what stood before them."""
    for heading, key in _HEADING.findall(before):
        if f"{heading}{key}:" not in text:
            # A key that is new in the section before stands below this heading.
            text = text.replace(f"\n{heading}", "", 1)
            text = re.sub(rf"^\n*{key}:", rf"\n{key}:", text, flags=re.MULTILINE)
            text = text.replace(f"\n{key}:", f"\n{heading}{key}:", 1)
    return text


def _one_line(value: Any, yaml: YAML) -> str:
    """The value on one line, as far as that shows it."""
    return shorten(_dump(value, yaml).removesuffix("...\n"))
