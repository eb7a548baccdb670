"""The flow that hardens the target: round by round it learns from findings and is measured again.

What a round has made is kept under the key of everything that decides it, so a flow that was killed
goes on where it was, and one with more rounds adds those.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.tasks import exponential_backoff

from astra_core.files import draft_folder_of, write_text
from flows.orchestration.reports import publish_page
from flows.orchestration.run_logs import told_to_run
from flows.orchestration.stages import can_pass, run_to_state
from flows.promotion import store_is_away
from flows.runs.limits import limit_of
from flows.runs.preparation import usable_params
from flows.servers.processes import stage_command
from flows.sweeps.points import code_digest, make_points
from flows.sweeps.running import run_stages
from tasks.findings.archive import ARCHIVE, add_findings, read_rows
from tasks.hardening.measures import gathered
from tasks.hardening.places import HardeningPlace
from tasks.hardening.registration import register_target
from tasks.hardening.step import NAME
from tasks.machine.console import say
from tasks.params.schema import FlowConfiguration, HardeningConfiguration
from tasks.pipeline.names import STAGE_NAMES
from tasks.records.hardening import HARDENING, NOTHING_FOUND, Hardening
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record, write_record
from tasks.report.hardening import hardening_page
from tasks.report.publish import renew_report
from tasks.tracking.store import alone_with

PAGE = HARDENING.with_suffix(".md")


@flow(name="hardening", flow_run_name="harden the target")
def hardening(rounds: int | None = None, *, fresh: bool = True, versions: bool = True) -> Hardening:
    """Trains the target on findings and measures it again, until a reason to end.

    Args:
        rounds: Most rounds; None for those of params.yaml.
        fresh: Whether each target meets an attacker that was trained on it.
        versions: Whether each target becomes one in the registry.

    Raises ConfigurationError if params.yaml cannot be used, or the target cannot be trained here;
    StageError if a step failed.
    """
    params = usable_params()
    limits = params.hardening
    if rounds is not None:
        limits = limits.model_copy(update={"rounds": rounds})
    place = HardeningPlace.of(params, code=code_digest(), is_fresh=fresh)
    with alone_with(place.folder):
        return _Run(place, limits, is_fresh=fresh, is_registered=versions).to_the_end()


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
        found = self._measured(0)
        while not found.ended:
            number = found.rounds[-1].number + 1
            self._step("train", number)
            if self.place.target(number).is_dir():
                self._meet_fresh(number)
                found = self._measured(number)
            else:
                found = self._told(number - 1, ended=NOTHING_FOUND)
        return found

    def _step(self, step: str, number: int) -> None:
        limits = self.place.params.flow
        # Written last, after all that is measured before it.
        if step == "measure" and self.place.file(f"round_{number}.json").is_file():
            return
        command = stage_command("tasks.hardening.step", step, str(number), str(self.place.folder))
        _do(
            f"{step} target {number}",
            lambda: run_to_state(NAME, command, timeout_s=limit_of(NAME, limits)),
            limits,
        )

    def _meet_fresh(self, number: int) -> None:
        if self.is_fresh:
            place = self.place
            _do(f"attacker {number}", lambda: _train_fresh(number, place), place.params.flow)

    def _measured(self, number: int) -> Hardening:
        """The figures up to a round; its target is a version then."""
        self._step("measure", number)
        if number and self.is_registered:
            found, place = gathered(number, self.place), self.place
            self.versions[number] = _do(
                f"register target {number}",
                lambda: register_target(found, place),
                place.params.flow,
            )
        return self._told(number)

    def _told(self, number: int, *, ended: str = "") -> Hardening:
        """The figures up to a round, as they stand in the project's reports."""
        found = gathered(number, self.place)
        told = [replace(own, version=self.versions.get(own.number, "")) for own in found.rounds]
        found = replace(found, rounds=tuple(told))
        found = replace(found, ended=ended or found.reason_to_end(self.limits))
        page = hardening_page(found, best=found.best(self.limits))
        write_record(found, HARDENING)
        write_text(page, PAGE)
        if found.ended:
            publish_page("hardening", page, "The target after each round")
            _renew_report()
        return found


def _do(name: str, function: Callable[[], Any], limits: FlowConfiguration) -> Any:
    """What a function returns that is called as a task, with the retries of ``flow``."""

    @task(
        name=name,
        task_run_name=name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=limits.retries,
        retry_delay_seconds=exponential_backoff(backoff_factor=limits.retry_delay_s),
        retry_jitter_factor=1.0,
        retry_condition_fn=_may_pass,
    )
    def run() -> Any:
        with told_to_run(NAME):
            return function()

    state: State[Any] = run(return_state=True)
    return state.result()


def _may_pass(own: Any, run: Any, state: State[Any]) -> bool:
    return can_pass(own, run, state) or store_is_away(own, run, state)


def _train_fresh(number: int, place: HardeningPlace) -> None:
    """Trains an attacker on a target in a workspace of its own, and keeps it and its findings."""
    folder, params = place.attacker(number), place.params
    if folder.is_dir():
        return
    target = {"source": "folder", "path": str(place.target(number).absolute())}
    # Against a target that nothing provokes an attacker learns nothing, which is the result.
    settings = (f"models.target={json.dumps(target)}", "training.require_signal=false")
    (point,) = make_points([settings], [params.seed])
    timeout_s = sum(limit_of(name, params.flow) for name in STAGE_NAMES)
    say(f"{NAME:<13}attacker {number} is trained on target {number}; its log is {point.log}")
    with alone_with(point.folder):
        run_stages(point, *point.turns, parent=None, timeout_s=timeout_s)
        for path in sorted((point.folder / ARCHIVE).glob("*.parquet")):
            add_findings(read_rows(path), ARCHIVE / path.name)
        with draft_folder_of(folder) as draft:
            shutil.copytree(point.folder / "models" / "attacker", draft, dirs_exist_ok=True)
        shutil.rmtree(point.folder, ignore_errors=True)


def _renew_report() -> None:
    """The report of the version that was registered here last tells of the hardening, too."""
    if RECEIPT.is_file():
        own = read_record(RECEIPT, RegistrationReceipt)
        renew_report(own.model_name, own.version, receipt=RECEIPT)
