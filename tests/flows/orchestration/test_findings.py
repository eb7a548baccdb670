from dataclasses import asdict

import pytest

from astra_core.metrics.statistics import Interval
from flows.orchestration.findings import (
    DOCS,
    comparison_table,
    evaluation_page,
    publish_docs,
    publish_drift,
    publish_evaluation,
    publish_report,
    publish_run,
    run_address,
)
from flows.runs.data_drift import DataDrift
from tasks.expectations.drift import Drift
from tasks.promotion.gate import Comparison
from tasks.promotion.paired import Paired
from tasks.records.evaluation import CategoryRates, EvaluationRecord
from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import write_record

pytestmark = pytest.mark.real

SPAN, GAIN = Interval(0.5, 0.4, 0.6), Interval(0.2, 0.1, 0.3)
RECEIPT = RegistrationReceipt("attacker", "7", "abc", "1", "sqlite:///mlflow.db", "c0" * 32)


def _record():
    return EvaluationRecord(
        evaluation_key="e7" * 32,
        num_prompts=9,
        num_rollouts=1,
        depth=1,
        threshold=0.5,
        confidence=0.95,
        attacker={"attack_success_rate": SPAN, "unique_probes": 0.875},
        baseline={"attack_success_rate": GAIN},
        lift=GAIN,
        categories={"fraud": CategoryRates(9, SPAN, SPAN, SPAN)},
    )


def test_the_page_of_an_evaluation_has_both_attackers_with_intervals():
    page = evaluation_page(_record())

    assert "**+0.200 [+0.100, +0.300]**" in page
    assert f"| attack success | {GAIN.spelled()} | {SPAN.spelled()} |" in page
    assert "| unique probes | unknown | 0.88 |" in page
    assert "| fraud | 9 |" in page


def test_the_duel_is_a_table_with_the_interval_of_the_gain(compared):
    table = comparison_table(compared)

    assert "On 400 prompts" in table
    assert "| candidate | 0.600 |" in table
    assert "| what it would replace | 0.500 |" in table
    assert "| gain | +0.100 [+0.050, +0.150] (95%) |" in table


@pytest.fixture
def compared():
    test = Paired(**dict.fromkeys(Paired.__dataclass_fields__, 0))
    return Comparison(0.1, 0.05, 0.15, 0.6, 0.5, 400, 0.95, test)


def test_the_link_leads_to_the_run_and_hides_who_logs_in(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    server = RegistrationReceipt("attacker", "7", "abc", "1", "https://me:secret@ml:1/x/", "c0")

    assert "http://127.0.0.1:5000/#/experiments/1/runs/abc" == run_address(RECEIPT)
    assert "https://ml:1/x/#/experiments/1/runs/abc" == run_address(server)


def test_what_is_there_is_shown_and_what_is_not_is_left_out(tmp_path, monkeypatch, in_flow):
    from prefect.artifacts import Artifact

    monkeypatch.chdir(tmp_path)
    receipt, report = tmp_path / "registration.json", tmp_path / "report.html"
    evaluation = tmp_path / "evaluation.json"
    in_flow(publish_evaluation, evaluation)
    in_flow(publish_report, report)
    before = [Artifact.get(key) for key in ("evaluation", "report")]
    write_record(_record().to_record(), evaluation)
    write_record(asdict(RECEIPT), receipt)
    report.touch()
    in_flow(publish_evaluation, evaluation)
    in_flow(publish_run, receipt)
    in_flow(publish_report, report)
    after = [Artifact.get(key).data for key in ("evaluation", "mlflow-run", "report")]

    assert [None, None] == before
    assert after[0].startswith("Gain of the trained attacker")
    assert "(http://127.0.0.1:5000/#/experiments/1/runs/abc)" in after[1]
    assert report.as_uri() in after[2]


def test_the_data_docs_of_a_stage_are_linked_if_there_are_any(in_flow, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert publish_docs("rollouts") is None

    from prefect.artifacts import Artifact

    page = tmp_path / DOCS["rollouts"]
    page.parent.mkdir(parents=True)
    page.write_text("<h1>Rollouts</h1>", encoding="utf-8")
    in_flow(publish_docs, "rollouts")

    assert page.as_uri() in Artifact.get("data-docs-rollouts").data


def test_a_drift_is_a_page_beside_the_run(in_flow):
    from prefect.artifacts import Artifact

    drift = Drift("prompts", "characters", index=0.9, chance=0.1, limit=0.25)
    in_flow(publish_drift, DataDrift("3", (drift,)))

    assert "| prompts | characters | 0.900 |" in Artifact.get("data-drift-prompts").data
