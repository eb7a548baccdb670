"""The flow that hardens the target: round by round it learns from findings and is measured again.

What a round has made is kept under the key of everything that decides it, so a flow that was killed
goes on where it was, and one with more rounds adds those.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from astra_core.errors import ConfigurationError
from astra_core.files import draft_folder_of, record_digest, write_text
from flows.orchestration.lost_runs import note_process
from flows.orchestration.reports import publish_page
from flows.orchestration.run_logs import told_to_run
from flows.orchestration.stages import can_pass, run_to_state, with_retries
from flows.promotion import store_is_away
from flows.runs.limits import limit_of
from flows.runs.preparation import usable_params
from flows.runs.turns import in_turn
from flows.servers.processes import stage_command
from flows.sweeps.points import LAST, Point, code_digest, make_points, outside_digests
from flows.sweeps.running import run_stages
from tasks.findings.archive import ARCHIVE, add_findings, read_rows
from tasks.hardening.measures import gather
from tasks.hardening.pairs import first_findings
from tasks.hardening.places import HardeningPlace
from tasks.hardening.registration import register_target
from tasks.hardening.step import NAME
from tasks.machine.console import say
from tasks.params.schema import HardeningConfiguration, Params, read_params
from tasks.pipeline.names import STAGE_NAMES
from tasks.records.hardening import HARDENING, NOTHING_FOUND, Hardening
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record, write_record
from tasks.report.hardening import hardening_page
from tasks.report.publish import renew_report
from tasks.tracking.store import alone_with

PAGE = HARDENING.with_suffix(".md")


@flow(name="hardening", flow_run_name="harden the target", on_running=[note_process])
def hardening(rounds: int | None = None, *, fresh: bool = True, versions: bool = True) -> Hardening:
    """Trains the target on findings and measures it again, until a reason to end.

    Args:
        rounds: Most rounds; None for those of params.yaml.
        fresh: Whether each target meets an attacker that was trained on it.
        versions: Whether each target becomes one in the registry.

    Raises ConfigurationError if params.yaml cannot be used, or the target cannot be trained here;
    StageError if a step failed.
    """
    # A run would change the attacker and the target that it begins with.
    with in_turn():
        params = usable_params()
        limits = params.hardening
        if rounds is not None:
            limits = limits.model_copy(update={"rounds": rounds})
        findings = first_findings(params)
        now = _place_of(params, findings, is_fresh=fresh)
        place = now.begin(findings)
        if place != now:
            say(f"{NAME:<13}goes on in {place.folder}, with the findings that it began with")
        return _Run(place, limits, is_fresh=fresh, is_registered=versions).to_the_end()


def _place_of(params: Params, findings: Sequence[str], *, is_fresh: bool) -> HardeningPlace:
    code = record_digest([code_digest(), outside_digests(params)])
    return HardeningPlace.of(params, code=code, findings=findings, is_fresh=is_fresh)


@dataclass(slots=True)
class _Run:
    """A hardening that is under way."""

    place: HardeningPlace
    limits: HardeningConfiguration
    is_fresh: bool
    is_registered: bool
    versions: dict[int, str] = field(default_factory=dict)

    def to_the_end(self) -> Hardening:
        """All rounds."""
        found = self._measurement(0)
        while not found.ended:
            number = found.rounds[-1].number + 1
            self._step("train", number)
            if self.place.target(number).is_dir():
                self._meet_fresh(number)
                found = self._measurement(number)
            else:
                found = self._report(number - 1, ended=NOTHING_FOUND)
        return found

    def _step(self, step: str, number: int) -> None:
        # Written last, after all that is measured before it.
        if step == "measure" and self.place.file(f"round_{number}.json").is_file():
            return
        command = stage_command("tasks.hardening.step", step, str(number), str(self.place.folder))
        timeout_s = limit_of(NAME, self.place.params.flow)
        self._do(
            f"{step} target {number}", lambda: run_to_state(NAME, command, timeout_s=timeout_s)
        )

    def _meet_fresh(self, number: int) -> None:
        if self.is_fresh:
            place = self.place
            self._do(f"attacker {number}", lambda: _train_fresh(number, place))

    def _measurement(self, number: int) -> Hardening:
        """The figures up to a round; its target is a version then."""
        self._step("measure", number)
        if number and self.is_registered:
            found, place = gather(number, self.place), self.place
            self.versions[number] = self._do(
                f"register target {number}", lambda: register_target(found, place)
            )
        return self._report(number)

    def _report(self, number: int, *, ended: str = "") -> Hardening:
        """The figures up to a round, as they stand in the project's reports."""
        found = gather(number, self.place)
        told = [replace(own, version=self.versions.get(own.number, "")) for own in found.rounds]
        found = replace(found, rounds=tuple(told))
        found = replace(found, ended=ended or found.reason_to_end(self.limits))
        page = hardening_page(found, best=found.best(self.limits))
        write_record(found, HARDENING)
        write_text(page, PAGE)
        if found.ended:
            self.place.end()
            publish_page("hardening", page, "The target after each round")
            _renew_report()
        return found

    def _do(self, name: str, function: Callable[[], Any]) -> Any:
        """What a function returns that is called as a task, with the retries of ``flow``."""

        @with_retries(name, self.place.params.flow, condition=_may_pass)
        def run() -> Any:
            # A step reads params.yaml and models anew, and writes where these have led.
            now = _place_of(read_params(), (), is_fresh=self.is_fresh)
            if now.settings != self.place.settings:
                msg = (
                    "params.yaml, models, prompts and code must stay as they are while a target "
                    "is hardened, got others; undo the change, or begin anew with 'astra harden'"
                )
                raise ConfigurationError(msg)
            with told_to_run(NAME):
                return function()

        state: State[Any] = run(return_state=True)
        return state.result()


def _may_pass(own: Any, run: Any, state: State[Any]) -> bool:
    return can_pass(own, run, state) or store_is_away(own, run, state)


def _train_fresh(number: int, place: HardeningPlace) -> None:
    """Trains an attacker on a target in a workspace of its own, and keeps it and its findings."""
    folder, point = place.attacker(number), _fresh_point(number, place)
    timeout_s = sum(limit_of(name, place.params.flow) for name in STAGE_NAMES)
    with alone_with(point.folder):
        if not folder.is_dir():
            say(f"{NAME:<13}attacker {number} is trained on target {number}; its log: {point.log}")
            # It is measured here, on the same prompts as every other.
            turns = [own for own in point.turns if not own.startswith(f"{LAST}=")]
            run_stages(point, *turns, parent=None, timeout_s=timeout_s)
            for path in sorted((point.folder / ARCHIVE).glob("*.parquet")):
                add_findings(read_rows(path), ARCHIVE / path.name)
            with draft_folder_of(folder) as draft:
                shutil.copytree(point.folder / "models" / "attacker", draft, dirs_exist_ok=True)
        # A kill may have come just before.
        point.remove_workspace()


def _fresh_point(number: int, place: HardeningPlace) -> Point:
    target = {"source": "folder", "path": str(place.target(number).absolute())}
    # Against a target that nothing provokes an attacker learns nothing, which is the result.
    settings = (f"models.target={json.dumps(target)}", "training.require_signal=false")
    return make_points([settings], [place.params.seed])[0]


def _renew_report() -> None:
    """The report of the version that was registered here last tells of the hardening, too."""
    if RECEIPT.is_file():
        own = read_record(RECEIPT, RegistrationReceipt)
        renew_report(own.model_name, own.version, receipt=RECEIPT)
