"""The gate as a Prefect task and as a flow; ``tasks.promotion.decision`` makes the decision."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed
from prefect.utilities.urls import url_for

from flows.orchestration.events import announce_decision
from flows.orchestration.findings import comparison_table, publish_report
from flows.orchestration.lost_runs import note_process
from flows.orchestration.reports import publish_page
from flows.orchestration.run_logs import told_to_run
from flows.orchestration.stages import with_retries
from flows.runs.limits import limit_of, time_limit
from flows.servers.addresses import api_url
from flows.servers.temporary_server import is_temporary
from tasks.figures.category_table import with_categories
from tasks.machine.privacy import keep_private
from tasks.params.schema import Params, read_params
from tasks.pipeline.names import PROMOTION
from tasks.records.evaluation import EVALUATION, read_evaluation
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.tracking.errors import StoreError

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


def store_is_away(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Only a store that did not answer is worth a retry."""
    return isinstance(state.data, StoreError)


def promote(params: Params) -> "PromotionDecision":
    """The gate's decision about the candidate, under the retries and the limit of ``flow``.

    A refusal is a result.

    Raises StageTimeoutError if the decision took longer than ``flow`` allows.
    """
    decide = with_retries(PROMOTION, params.flow, condition=store_is_away)(_promote)
    return decide(params)


# The retries are around the whole transaction: a task that is retried inside a Prefect
# transaction rolls its siblings back at the first failure and then completes without them.
def _promote(params: Params) -> "PromotionDecision":
    from tasks.promotion.decision import promote_attacker
    from tasks.report.publish import renew_report

    with told_to_run(PROMOTION):
        with time_limit(limit_of(PROMOTION, params.flow), PROMOTION):
            decision = promote_attacker(params)
        renew_report(
            decision.model_name,
            decision.candidate_version,
            receipt=RECEIPT,
            flow_run=flow_run_page(),
        )
    publish_page("promotion-decision", decision_page(decision), "Whether it is champion, and why")
    publish_report()
    announce_decision(decision)
    return decision


def flow_run_page() -> str:
    """The address of the present flow run's page; empty where its server ends with the run."""
    from prefect.runtime import flow_run

    api = (api_url() if flow_run.id else None) or ""
    return "" if not api or is_temporary(api) else url_for("flow-run", obj_id=flow_run.id) or ""


def decision_page(
    decision: "PromotionDecision", *, evaluation: Path = EVALUATION, receipt: Path = RECEIPT
) -> str:
    """The decision in words and figures, and by category if the candidate is the last run's."""
    page = decision.summary()
    if decision.comparison is not None:
        page += f"\n\n{comparison_table(decision.comparison)}"
    if not (evaluation.is_file() and receipt.is_file()):
        return page
    registered = read_record(receipt, RegistrationReceipt)
    is_it = registered.version == decision.candidate_version
    rates = read_evaluation(evaluation).categories if is_it else {}
    return with_categories(page + "\n" * bool(rates), rates)


@flow(name=PROMOTION, flow_run_name="decide about the candidate", on_running=[note_process])
def promotion() -> "PromotionDecision":
    """Decides about the candidate again, for example after the rules changed."""
    keep_private()
    decision = promote(read_params())
    state: State[Any] = Completed(message=decision.summary(), data=decision)
    # Prefect gives the caller of the flow the data of the state.
    return cast("PromotionDecision", state)
