from pathlib import Path

import pytest
from registry_project import EVALUATION_KEY

from tasks.promotion.examinations import REPORT_FILE, find_examination
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


@pytest.fixture
def client(candidate_in_memory):
    return connect()


@pytest.fixture
def version(client):
    return client.get_model_version_by_alias("attacker", "candidate")


def test_the_examination_of_the_registration_is_found(client, version):
    report, table = find_examination(client, version, EVALUATION_KEY)

    assert EVALUATION_KEY == report["evaluation_key"]
    assert {"attacker", "baseline"} == set(table["role"])


def test_an_examination_that_was_not_made_is_none(client, version):
    assert find_examination(client, version, "a1" * 32) is None


def test_an_examination_without_its_report_is_none(client, version):
    folder = next(Path("mlruns").rglob(f"evaluation/{EVALUATION_KEY[:16]}"))
    report = (folder / REPORT_FILE).read_bytes()
    (folder / REPORT_FILE).unlink()

    assert find_examination(client, version, EVALUATION_KEY) is None
    (folder / REPORT_FILE).write_bytes(report)
    assert find_examination(client, version, EVALUATION_KEY) is not None
