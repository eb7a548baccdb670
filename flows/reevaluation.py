"""The flow that checks the champion: how does it perform on today's prompts?"""

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.orchestration.events import announce_reevaluation
from flows.orchestration.lost_runs import note_process
from flows.orchestration.names import reevaluation_name, scheduled_day
from flows.orchestration.reports import publish_page
from flows.orchestration.run_logs import told_to_run
from flows.orchestration.stages import run_to_state, with_retries
from flows.runs.limits import limit_of
from flows.runs.preparation import usable_params
from flows.servers.processes import stage_command
from tasks.machine.console import complain
from tasks.params.schema import Params
from tasks.promotion.reevaluation import FOLDER, NAME, Reevaluation
from tasks.records.reports import read_record


@flow(name="champion-reevaluation", flow_run_name=reevaluation_name, on_running=[note_process])
def champion_reevaluation(seed: int | None = None, file: Path | None = None) -> State[Any]:
    """Completed with the outcome, or Skipped while there is no champion.

    ``seed``: the seed of the fresh prompts; by default the day the run was scheduled for, as
    20261121, so that a run repeated on another day uses the same prompts.

    Raises ConfigurationError if params.yaml cannot be used; nothing has run, StageError if the
    evaluation failed; the message is its own.
    """
    params = usable_params()
    fresh_seed = scheduled_day() if seed is None else seed
    state = with_retries(NAME, params.flow)(_examine)(fresh_seed, file, params, return_state=True)
    state.result()
    found = read_record(FOLDER / "outcome.json", Reevaluation)
    publish_page("champion-reevaluation", found.page(), "The champion on prompts it has never met")
    announce_reevaluation(found)
    if found.version is None:
        return Completed(name="Skipped", message=found.summary())
    if found.has_drifted:
        complain(f"warning: {found.summary()}")
    return Completed(message=found.summary())


def _examine(fresh_seed: int, file: Path | None, params: Params) -> State[Any]:
    source = ["--file", str(file)] if file is not None else []
    command = stage_command("tasks.promotion.reevaluation", "--seed", str(fresh_seed), *source)
    with told_to_run(NAME):
        return run_to_state(NAME, command, timeout_s=limit_of("evaluation", params.flow))
