from pathlib import Path

import pytest
from registry_project import register, write_project
from report_material import material

from tasks.records.receipt import RECEIPT
from tasks.report.publish import description, renew_report, run_name
from tasks.tracking.store import connect


@pytest.fixture
def receipt(in_memory):
    write_project(in_memory)
    return register()


@pytest.mark.real
def test_registration_shows_the_report_at_the_top_of_its_run(receipt):
    client = connect()
    run = client.get_run(receipt.run_id)
    page = Path("reports/report.html").read_text("utf-8")

    assert "v1-dpo-s0-asr0.60" == run.info.run_name
    assert page == (Path(run.info.artifact_uri) / "report.html").read_text("utf-8")
    note = run.data.tags["mlflow.note.content"]
    assert note.startswith("**Attack success 60.0% [50.0%, 70.0%]**")
    place = f"#/experiments/{receipt.experiment_id}/runs/{receipt.run_id}/artifacts/report.html"
    assert f"[Open the report]({place})" in note
    assert "FINISHED" == run.info.status


@pytest.mark.real
def test_a_decision_renews_the_report(receipt, capsys):
    client = connect()
    client.set_model_version_tag("attacker", "1", "promotion.decision", "refused")
    renew_report("attacker", "1", receipt=RECEIPT, flow_run="http://127.0.0.1:4200/runs/x")
    note = client.get_run(receipt.run_id).data.tags["mlflow.note.content"]

    assert 'href="http://127.0.0.1:4200/runs/x"' in Path("reports/report.html").read_text("utf-8")
    assert "Not promoted" in Path("reports/report.html").read_text("utf-8")
    assert "Not promoted" in note
    assert "refused" == client.get_run(receipt.run_id).data.tags["decision"]
    told = client.get_model_version("attacker", "1").description
    assert told.startswith("**Decision**: Not promoted")
    assert 1 == told.count("**Decision**")
    assert "[Prefect run](http://127.0.0.1:4200/runs/x)" in note

    # The project keeps the report of what was registered there last; a failure is a line.
    Path("reports/report.html").unlink()
    renew_report("attacker", "1", receipt=Path("other.json"))
    assert not Path("reports/report.html").exists()
    renew_report("attacker", "9", receipt=RECEIPT)
    assert "warning: version 9 of 'attacker' has no new report" in capsys.readouterr().err


def test_the_description_says_with_what_a_run_compares():
    told = description(material())

    assert "Examination `e7e7e7e7e7e7e7e7`, prompts `d1d1d1d1d1d1d1d1`" in told
    assert "Prefect" not in told
    assert "v3-dpo-s0-asr0.60" == run_name(material())
