import json

import pytest

from flows.errors import StageError
from flows.orchestration.reports import pipeline_report, publish_page, publish_validation
from flows.orchestration.stages import StageOutcome

pytestmark = pytest.mark.real

DONE = StageOutcome("prompts", "Completed", 1.5, 1, "Stage prompts is done.")
REFUSED = StageOutcome("validation", "Failed", 2.0, 1, "too few", error=StageError("too few"))


def _artifact(key):
    from prefect.artifacts import Artifact

    return Artifact.get(key).data


def test_the_report_is_published_when_a_stage_fails(in_flow):
    def run():
        with pipeline_report() as outcomes:
            for outcome in (DONE, REFUSED):
                outcomes.append(outcome)
                outcome.require_done()

    with pytest.raises(StageError, match=r"^too few$"):
        in_flow(run)

    assert [
        {
            "stage": "prompts",
            "state": "Completed",
            "seconds": 1.5,
            "attempts": 1,
            "message": "Stage prompts is done.",
        },
        {
            "stage": "validation",
            "state": "Failed",
            "seconds": 2.0,
            "attempts": 1,
            "message": "too few",
        },
    ] == json.loads(_artifact("pipeline-report"))


def test_ctrl_c_does_not_wait_for_a_report(capsys):
    with pytest.raises(KeyboardInterrupt), pipeline_report():
        raise KeyboardInterrupt

    assert "" == capsys.readouterr().err


def test_the_page_of_the_data_gate_is_published_if_there_is_one(in_flow, tmp_path):
    page = tmp_path / "validation.md"
    page.write_text("# Validation", encoding="utf-8")
    in_flow(publish_validation, page)

    assert "# Validation" == _artifact("validation-report")
    assert publish_validation(tmp_path / "none.md") is None


def test_a_page_is_published_under_its_key(in_flow):
    in_flow(publish_page, "some-page", "text", "what it is")

    assert "text" == _artifact("some-page")
