"""The project's state: which stages would run, and which versions have an alias."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from astra_core.errors import DiskFullError
from flows.registry import alias_versions, files_are_there, why_unregistered
from tasks.machine.console import quiet_libraries
from tasks.params.overlay import overlaid, overrides
from tasks.params.schema import PARAMS_FILE, read_params, read_record
from tasks.params.yaml_files import load_yaml
from tasks.pipeline.dvc_files import LOCK_FILE
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import SCRIPT, outdated_stages
from tasks.pipeline.reproduction import NOT_MADE, AtWorkError, changes
from tasks.records.receipt import RECEIPT
from tasks.tracking.database.store_check import has_store
from tasks.tracking.errors import TrackingError

MAX_REASONS = 3


def status_lines() -> list[str]:
    """One line for each stage, and one for each alias of the registry, or why it cannot be read."""
    quiet_libraries()
    model = read_params().registration.model_name
    versions, away = _aliases(model)
    try:
        changed = _changes() if away else changed_stages()
        lines = [stage_line(name, changed.get(name, [])) for name in STAGE_NAMES]
    except AtWorkError as error:
        lines = [f"{'stages':<13}{error}"]
    if away:
        # Whether there is a champion is unknown, which differs from none.
        return [*lines, f"{'champion':<13}away: {away}"]
    lines += [_alias_line(alias, model, version) for alias, version in versions.items()]
    return lines if "champion" in versions else [*lines, f"{'champion':<13}none yet"]


def status_record() -> dict[str, Any]:
    """The same as JSON: reasons by stage (none: up to date), version by alias; None if unknown."""
    quiet_libraries()
    versions, away = _aliases(read_params().registration.model_name)
    try:
        changed = _changes() if away else changed_stages()
        stages = {name: changed.get(name, []) for name in STAGE_NAMES}
        at_work = None
    except AtWorkError as error:
        stages, at_work = None, str(error)
    return {"stages": stages, "at_work": at_work, "aliases": None if away else versions}


def _aliases(model: str) -> tuple[dict[str, str], str]:
    """Versions by alias, and why the registry is away; asked first, so that one waits once."""
    try:
        return alias_versions(model), ""
    except (TrackingError, DiskFullError) as error:
        return {}, str(error)


def changed_stages() -> dict[str, list[str]]:
    """Why stages would run: what DVC found changed, or that the registry lacks the version.

    Raises ConfigurationError if the folder is no DVC project, or another process works here.
    """
    found = _changes()
    # A look makes no store. One that is gone, though a receipt names a version in it, is told where
    # the aliases are read, with the advice to restore it.
    if "registration" not in found and (has_store() or not RECEIPT.is_file()):
        # Away is not lost: the run itself tries again, and says so.
        with suppress(TrackingError, DiskFullError):
            if reason := why_unregistered():
                found["registration"] = [reason]
    return found


def _changes() -> dict[str, list[str]]:
    """What DVC finds changed under these parameters, and the code that a project has installed."""
    found = changes()
    if others := overrides():
        _lay_under(found, overlaid(read_record()))
    if SCRIPT.is_file() or others:
        for name, why in outdated_stages(read_params()):
            if found.get(name) != [NOT_MADE]:
                found.setdefault(name, []).append(why)
    return found


def _lay_under(found: dict[str, list[str]], record: dict[str, Any]) -> None:
    """Puts what differs in ``record`` in place of what DVC found changed in params.yaml."""
    text = LOCK_FILE.read_text("utf-8") if LOCK_FILE.is_file() else "stages: {}"
    lock = load_yaml(text, subject=str(LOCK_FILE), way_out="see 'astra doctor'")
    for name, entry in lock["stages"].items():
        last = entry.get("params", {}).get(str(PARAMS_FILE), {})
        keys = [key for key, value in last.items() if value != _value_of(record, key)]
        why = [own for own in found.pop(name, ()) if not own.startswith(f"{PARAMS_FILE} ")]
        if why := why + [f"{PARAMS_FILE} {', '.join(keys)}"] * (bool(keys) and why != [NOT_MADE]):
            found[name] = why


def _value_of(record: Any, key: str) -> Any:
    for part in key.split("."):
        record = record.get(part) if isinstance(record, dict) else None
    return record


def _alias_line(alias: str, model: str, version: str) -> str:
    gone = (
        ""
        if files_are_there(model, version)
        else (", whose files are gone: restore mlruns; 'astra run' registers its own again")
    )
    return f"{alias:<13}{model} version {version}{gone}"


def stage_line(name: str, reasons: list[str]) -> str:
    """One stage with the first reasons why it would run."""
    if not reasons:
        return f"{name:<13}up to date"
    return f"{name:<13}would run: {first_reasons(reasons)}"


def first_reasons(reasons: Sequence[str]) -> str:
    """The first of the reasons, and how many more there are."""
    more = len(reasons) - MAX_REASONS
    return ", ".join(reasons[:MAX_REASONS]) + (f" and {more} more" if more > 0 else "")
