"""How the present data differ from those of the champion, as a run, a page and a command say it."""

from dataclasses import dataclass
from typing import Any

from astra_core.errors import AstraError, DataError
from tasks.expectations.drift import Drift, drifts
from tasks.machine.console import complain, say_found
from tasks.params.schema import Params
from tasks.records.reports import read_report
from tasks.tracking.database.store_check import existing_registry
from tasks.tracking.registry.accepted import REPORTS, AcceptedData, accepted_data, profile_in
from tasks.tracking.store import store_errors

_SUBJECTS = {"validation": "prompts", "rollouts": "rollouts"}
_SCORES = ("score", "probe_score")


@dataclass(frozen=True, slots=True)
class DataDrift:
    """What was compared."""

    version: str
    found: tuple[Drift, ...]
    left_out: tuple[str, ...] = ()

    @property
    def large(self) -> tuple[Drift, ...]:
        """What a person should look at."""
        return tuple(drift for drift in self.found if drift.is_large)

    def record(self) -> dict[str, Any]:
        """As JSON."""
        found = [drift.record() for drift in self.found]
        return {"version": self.version, "drifts": found, "left_out": list(self.left_out)}

    def summary(self) -> str:
        """One line for a person."""
        if not self.found:
            return f"nothing to compare with the data of champion version {self.version}"
        if not self.large:
            return f"no drift from the data of champion version {self.version}"
        words = ", ".join(f"{each.what} {each.index:.2f}" for each in self.large)
        return (
            f"the {self.large[0].subject} drifted from those of champion version {self.version}: "
            f"{words} (stability index above {self.large[0].limit:g})"
        )

    def to_markdown(self) -> str:
        """As a page."""
        rows = [
            f"| {each.subject} | {each.what} | {each.index:.3f} | {each.chance:.3f} "
            f"| {each.limit:g} | {'yes' if each.is_large else 'no'} |"
            for each in self.found
        ]
        head = ["| of | what | stability index | by chance | limit | drifted |", "|---" * 6 + "|"]
        left_out = [f"- Not compared: {each}." for each in self.left_out]
        return "\n".join([f"{self.summary()}.", "", *head, *rows, "", *left_out]) + "\n"


def drift_of(subjects: tuple[str, ...], params: Params) -> DataDrift | None:
    """How the reports here differ from the champion's; None while there is no champion."""
    with store_errors():
        client = existing_registry()
        name = params.registration.model_name
        accepted = None if client is None else accepted_data(client, name)
    if accepted is None:
        return None
    found: list[Drift] = []
    left_out: list[str] = []
    for subject in subjects:
        own, why = _compare(subject, accepted, limit=params.flow.max_data_drift)
        found += own
        left_out += why
    return DataDrift(accepted.version, tuple(found), tuple(left_out))


def told_drift(stage: str, params: Params) -> DataDrift | None:
    """What a stage's data say, after one line where they drifted; a store away stops nothing."""
    if stage not in _SUBJECTS:
        return None
    try:
        found = drift_of((_SUBJECTS[stage],), params)
    except AstraError as error:
        complain(f"warning: drift of the data is unknown: {error}")
        return None
    if found is not None and found.large:
        complain(f"{stage:<13}warning: {found.summary()}; 'astra drift' shows all")
    return found


def show_drift(params: Params, *, as_json: bool) -> None:
    """Prints how all data here differ from the champion's.

    Raises DataError if there is no champion, or a report is missing.
    """
    found = drift_of(tuple(REPORTS), params)
    if found is None:
        msg = "drift needs a champion to compare with, got none; 'astra history' shows versions"
        raise DataError(msg)
    left_out = [f"not compared: {why}" for why in found.left_out]
    lines = [*map(drift_line, found.found), *left_out, found.summary()]
    say_found(found.record(), lines, as_json=as_json)


def drift_line(each: Drift) -> str:
    """One respect: how far, and what it is held against."""
    verdict = "drifted" if each.is_large else "alike"
    bounds = f"limit {each.limit:g}, by chance up to {each.chance:.3f}"
    return f"{each.subject:<10}{each.what:<18}{each.index:7.3f}  {verdict:<8}{bounds}"


def _compare(
    subject: str, accepted: AcceptedData, *, limit: float
) -> tuple[tuple[Drift, ...], list[str]]:
    now, then = profile_in(read_report(REPORTS[subject])), accepted.profiles.get(subject)
    if now is None or then is None:
        return (), [f"{subject}, of which one side has no profile yet"]
    if now.attacker != then.attacker:
        return (), [f"{subject}, for they are another attacker's"]
    counts, left_out = dict(now.counts), []
    if now.judge != then.judge:
        counts = {what: own for what, own in counts.items() if what not in _SCORES}
        left_out = [f"scores of {subject}, for another judge gave them"]
    rows = (now.num_independent, then.num_independent)
    return drifts(subject, counts, then.counts, rows=rows, limit=limit), left_out
