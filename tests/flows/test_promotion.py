from dataclasses import asdict

import pytest
from prefect.states import Failed

from astra_core.errors import DataError
from astra_core.metrics.statistics import Interval
from flows.promotion import decision_page, promote
from tasks.promotion.decision import PromotionDecision
from tasks.records.evaluation import CategoryRates, EvaluationRecord
from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import write_record
from tasks.tracking.errors import StoreError, TrackingError


@pytest.mark.parametrize(
    ("error", "is_tried_again"),
    [(StoreError("away"), True), (TrackingError("no candidate"), False), (DataError("x"), False)],
)
def test_only_a_store_that_is_away_is_asked_again(error, is_tried_again):
    assert is_tried_again is promote.retry_condition_fn(promote, None, Failed(data=error))


def test_the_retries_stand_around_the_whole():
    assert promote.retries >= 1


SPAN = Interval(0.5, 0.4, 0.6)


@pytest.mark.parametrize(("version", "has_table"), [("7", True), ("6", False)])
def test_the_page_has_the_categories_of_the_candidate_that_was_registered_last(
    tmp_path, version, has_table
):
    record = EvaluationRecord(
        evaluation_key="e7" * 32,
        num_prompts=9,
        num_rollouts=1,
        depth=1,
        threshold=0.5,
        confidence=0.95,
        attacker={"attack_success_rate": SPAN},
        baseline={"attack_success_rate": SPAN},
        lift=SPAN,
        categories={"fraud": CategoryRates(9, SPAN, SPAN, SPAN)},
    )
    receipt = RegistrationReceipt("attacker", "7", "run", "1", "sqlite://", "c0" * 32)
    places = {"evaluation": tmp_path / "evaluation.json", "receipt": tmp_path / "receipt.json"}
    decision = PromotionDecision(
        promoted=True,
        changed=True,
        reasons=("better",),
        model_name="attacker",
        candidate_version=version,
        champion_version=version,
        previous_version=None,
        comparison=None,
    )
    assert decision.summary() == decision_page(decision, **places)
    write_record(record.to_record(), places["evaluation"])
    write_record(asdict(receipt), places["receipt"])

    page = decision_page(decision, **places)
    assert page.startswith(decision.summary())
    assert has_table is ("| fraud | 9 | 0.500 [0.400, 0.600] |" in page)
