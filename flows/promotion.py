"""The gate as a Prefect task and as a flow; ``tasks.promotion.decision`` makes the decision."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.tasks import exponential_backoff

from flows.orchestration.reports import publish_page
from tasks.machine.privacy import keep_private
from tasks.params.schema import Params, read_params
from tasks.records.evaluation import read_evaluation
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record
from tasks.reporting.category_table import with_categories
from tasks.tracking.errors import StoreError

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


EVALUATION = Path("reports/evaluation.json")
PAGES = "http://127.0.0.1:4200"
"""Of Prefect, at the port that ``astra ui`` chooses by itself."""


def _can_pass(_task: Any, _run: Any, state: State[Any]) -> bool:
    """Only a store that did not answer is worth a retry."""
    return isinstance(state.data, StoreError)


# The retries are around the whole transaction: a task that is retried inside a Prefect
# transaction rolls its siblings back at the first failure and then completes without them.
@task(
    name="promotion",
    task_run_name="promotion",
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=exponential_backoff(backoff_factor=2.0),
    retry_jitter_factor=1.0,
    retry_condition_fn=_can_pass,
)
def promote(params: Params) -> "PromotionDecision":
    """The gate's decision about the candidate; a refusal is a result."""
    from tasks.promotion.decision import promote_attacker
    from tasks.report.publish import renew_report

    decision = promote_attacker(params)
    renew_report(
        decision.model_name,
        decision.candidate_version,
        receipt=RECEIPT,
        flow_run=flow_run_page(),
    )
    publish_page("promotion-decision", decision_page(decision))
    return decision


def flow_run_page() -> str:
    """The address of the present flow run's page, where ``astra ui`` serves it."""
    from prefect.runtime import flow_run

    return f"{PAGES}/runs/flow-run/{flow_run.id}" if flow_run.id else ""


def decision_page(
    decision: "PromotionDecision", *, evaluation: Path = EVALUATION, receipt: Path = RECEIPT
) -> str:
    """The decision, with the candidate's results by category if it is the last run's.

    Args:
        decision: Of the gate.
        evaluation: The last run's evaluation.
        receipt: Which version the last run registered.
    """
    if not (evaluation.is_file() and receipt.is_file()):
        return decision.summary()
    registered = read_record(receipt, RegistrationReceipt)
    is_it = registered.version == decision.candidate_version
    rates = read_evaluation(evaluation).categories if is_it else {}
    return with_categories(decision.summary() + "\n" * bool(rates), rates)


@flow(name="promotion")
def promotion() -> "PromotionDecision":
    """Decides about the candidate again, for example after the rules changed."""
    keep_private()
    return promote(read_params())
