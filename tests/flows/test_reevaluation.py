import shutil
from pathlib import Path

import pytest
from registry_project import enter_project

from flows.errors import StageError
from flows.reevaluation import champion_reevaluation

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch, prefect_server):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    enter_project(tmp_path, monkeypatch)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path


def test_without_a_champion_the_run_is_skipped_and_says_why(project):
    state = champion_reevaluation(seed=1, return_state=True)

    assert ("Skipped", True) == (state.name, state.is_completed())
    assert "attacker has no champion yet; 'astra run' makes a candidate" == state.message


def test_a_failure_is_reported_in_its_own_words(project):
    (project / "params.yaml").write_text("seed: -1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="seed: input should be greater than or equal to 0"):
        champion_reevaluation(seed=1)


def test_a_store_that_cannot_be_read_fails_the_run(project, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    (project / "params.yaml").write_text("flow: {retries: 0}\n", encoding="utf-8")
    with pytest.raises(StageError, match=r"http://127\.0\.0\.1:9 must answer"):
        champion_reevaluation(seed=1)
