import json
import shutil
import time
import uuid
from dataclasses import asdict
from pathlib import Path

import pytest
from each_row import each_row
from prefect.states import Failed

from astra_core.errors import DataError
from astra_core.metrics.statistics import Interval
from flows.errors import StageTimeoutError
from flows.promotion import decision_page, flow_run_page, promote, promotion, store_is_away
from flows.servers import temporary_server
from flows.servers.services import Service
from tasks.params.schema import Params
from tasks.promotion import decision
from tasks.promotion.decision import PromotionDecision
from tasks.records.evaluation import CategoryRates, EvaluationRecord
from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import write_record
from tasks.tracking.errors import StoreError, TrackingError

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
DECIDED = PromotionDecision(
    promoted=False,
    changed=False,
    reasons=("no better",),
    model_name="attacker",
    candidate_version="7",
    champion_version="6",
    previous_version=None,
    comparison=None,
)


@each_row(
    ("error", "is_tried_again"),
    [(StoreError("away"), True), (TrackingError("no candidate"), False), (DataError("x"), False)],
)
def test_only_a_store_that_is_away_is_asked_again(error, is_tried_again):
    assert is_tried_again is store_is_away(None, None, Failed(data=error))


@pytest.mark.parametrize("retries", [0, 1])
def test_a_store_that_is_away_is_asked_as_often_as_flow_retries_says(
    tmp_path, monkeypatch, in_flow, retries
):
    monkeypatch.chdir(tmp_path)
    tries = []
    monkeypatch.setattr(decision, "promote_attacker", lambda _: _away(tries))
    flow = {"retries": retries, "retry_delay_s": 0.01}
    params = Params.model_validate_json(json.dumps({"flow": flow}))
    with pytest.raises(StoreError, match="away"):
        in_flow(promote, params)

    assert 1 + retries == len(tries)


def test_a_run_that_only_decides_says_so_in_words(tmp_path, monkeypatch, prefect_server):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.setattr(decision, "promote_attacker", lambda _: DECIDED)
    state = promotion(return_state=True)

    assert DECIDED.summary() == state.message
    assert DECIDED == state.result()
    assert DECIDED == promotion()


@each_row(("is_of_the_run", "shown"), [(False, "http://127.0.0.1:4299/runs/"), (True, "")])
def test_a_flow_run_has_a_page_unless_its_server_ends_with_it(
    tmp_path, monkeypatch, is_of_the_run, shown
):
    from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

    monkeypatch.chdir(tmp_path)
    number, server = uuid.uuid4(), "http://127.0.0.1:4299"
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(number))
    monkeypatch.setenv("PREFECT_API_URL", f"{server}/api")
    if is_of_the_run:
        temporary_server._remember(Service("temporary-server", 1, 1.0, server))
    with temporary_settings({PREFECT_API_URL: f"{server}/api", PREFECT_UI_URL: server}):
        assert flow_run_page().startswith(shown)
        assert bool(shown) == (str(number) in flow_run_page())


def _away(tries):
    tries.append(1)
    msg = "away"
    raise StoreError(msg)


def test_a_decision_ends_at_its_limit(tmp_path, monkeypatch, in_flow):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(decision, "promote_attacker", lambda _: time.sleep(60.0))
    flow = {"retries": 0, "timeouts_s": {"promotion": 0.2}}
    params = Params.model_validate_json(json.dumps({"flow": flow}))
    with pytest.raises(StageTimeoutError, match=r"promotion must end within 0\.2 s"):
        in_flow(promote, params)


SPAN = Interval(0.5, 0.4, 0.6)


@each_row(("version", "has_table"), [("7", True), ("6", False)])
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
    decided = PromotionDecision(
        promoted=True,
        changed=True,
        reasons=("better",),
        model_name="attacker",
        candidate_version=version,
        champion_version=version,
        previous_version=None,
        comparison=None,
    )
    assert decided.summary() == decision_page(decided, **places)
    write_record(record.to_record(), places["evaluation"])
    write_record(asdict(receipt), places["receipt"])

    page = decision_page(decided, **places)
    assert page.startswith(decided.summary())
    assert has_table is ("| fraud | 9 | 50.0% [40.0%, 60.0%] |" in page)
