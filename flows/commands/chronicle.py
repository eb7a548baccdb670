"""What the registry tells: ``astra history``, ``champion``, ``lineage``, ``drift``; also as JSON.

Nothing here changes anything, and looking never creates a registry.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import DataError
from flows.usage import AsJson
from tasks.machine.console import say_found

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from tasks.tracking.lineage.chronicle import Lineage, VersionSummary

_NONE_YET = "no version is registered yet; 'astra run' makes one"


def history(as_json: AsJson = False) -> None:
    """List every registered version, newest first, with figures and decision."""
    versions = _summaries()
    say_found(
        [version.record() for version in versions],
        [history_line(version) for version in versions] or [_NONE_YET],
        as_json=as_json,
    )


def champion(as_json: AsJson = False) -> None:
    """Show who is champion, how good it is, and why it became champion."""
    found = next((each for each in _summaries() if "champion" in each.aliases), None)
    lines = ["no champion yet; 'astra history' shows what is registered"]
    if found is not None:
        lines = [history_line(found), f"{'decision':<13}{found.reasons or found.decision}"]
        lines.append(f"{'made from':<13}astra lineage {found.version}")
    say_found(None if found is None else found.record(), lines, as_json=as_json)


def lineage(
    version: Annotated[str, typer.Argument(help="A number, or an alias such as champion.")],
    as_json: AsJson = False,
) -> None:
    """Show what a version was made from, with digests, and how to get each part back."""
    _, found = client_and_lineage(version)
    say_found(found.record(), lineage_lines(found, model_name()), as_json=as_json)


def drift(as_json: AsJson = False) -> None:
    """Show how far the prompts and rollouts here are from those of the champion."""
    from flows.runs.data_drift import show_drift
    from tasks.params.schema import read_params

    show_drift(read_params(), as_json=as_json)


def history_line(version: "VersionSummary") -> str:
    """One version: aliases, when, figures, decision."""
    rate = "success unknown"
    if version.attack_success_rate is not None:
        value, low, high = version.attack_success_rate
        rate = f"success {value:.3f} [{low:.3f}, {high:.3f}]"
    lift = "" if version.lift is None else f", gain {version.lift:+.3f}"
    aliases = f" ({', '.join(version.aliases)})" if version.aliases else ""
    parent = f", trained on from version {version.parent}" if version.parent else ""
    name = f"version {version.version}{aliases}"
    return (
        f"{name:<24} {version.created[:16].replace('T', ' ')}  {version.algorithm} seed "
        f"{version.seed}  {rate}{lift}  {version.decision or 'not decided'}{parent}"
    )


def client_and_lineage(version: str) -> tuple["MlflowClient", "Lineage"]:
    """The registry's client, and what a version was made from.

    Raises DataError if nothing is registered; TrackingError if there is no such version, or the
    registry cannot be read.
    """
    from tasks.tracking.database.store_check import existing_registry
    from tasks.tracking.lineage.chronicle import lineage_of
    from tasks.tracking.store import store_errors

    client = existing_registry()
    if client is None:
        msg = f"version '{version}' must be registered, got an empty registry; see 'astra run'"
        raise DataError(msg)
    with store_errors():
        return client, lineage_of(client, model_name(), version)


def lineage_lines(found: "Lineage", model_name: str) -> list[str]:
    """Each part with its digest, then the commands that restore them."""
    ways = _ways(found, model_name)
    rows = [
        ("version", history_line(found.summary)),
        ("decision", found.summary.reasons or found.summary.decision or "none yet"),
        ("target", found.target_digest[:16]),
        ("judge", found.scorer),
        *found.facts(),
        ("", ""),
        ("get it back", ways[0]),
        *(("", way) for way in ways[1:]),
    ]
    return [f"{name:<13}{text}".rstrip() for name, text in rows]


def _ways(found: "Lineage", model_name: str) -> list[str]:
    number, run = found.summary.version, found.summary.run_id
    commit = found.code.get("git.commit", "unknown")
    return [
        f"mlflow artifacts download -u models:/{model_name}/{number} -d weights",
        f"mlflow artifacts download -r {run} -d run",
        *([f"git checkout {commit[:16]}"] if commit != "unknown" else []),
        f"astra restore {number}",
    ]


def _summaries() -> list["VersionSummary"]:
    from tasks.tracking.database.store_check import existing_registry
    from tasks.tracking.lineage.chronicle import version_summaries
    from tasks.tracking.store import store_errors

    client = existing_registry()
    if client is None:
        return []
    with store_errors():
        return version_summaries(client, model_name())


def model_name() -> str:
    """The name under which versions are registered."""
    from tasks.params.schema import read_params

    return read_params().registration.model_name
