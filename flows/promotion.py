"""The gate as a Prefect task and as a flow; ``tasks.promotion.decision`` makes the decision."""

from typing import TYPE_CHECKING, Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.tasks import exponential_backoff

from flows.orchestration.reports import publish_page
from tasks.machine.privacy import keep_private
from tasks.params.schema import Params, read_params
from tasks.tracking.errors import StoreError

if TYPE_CHECKING:
    from tasks.promotion.decision import PromotionDecision


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

    decision = promote_attacker(params)
    publish_page("promotion-decision", decision.summary())
    return decision


@flow(name="promotion")
def promotion() -> "PromotionDecision":
    """Decides about the candidate again, for example after the rules changed."""
    keep_private()
    return promote(read_params())
