from pathlib import Path

import pytest
from registry_project import (
    EVALUATION_KEY,
    enter_project,
    register,
    write_project,
)

from tasks.promotion.examinations import REPORT_FILE, find_examination
from tasks.tracking.store import connect


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """A registered attacker that was examined once, in a folder in which the tests work."""
    with pytest.MonkeyPatch.context() as patch:
        enter_project(tmp_path_factory.mktemp("examined"), patch)
        write_project(Path.cwd())
        register()
        yield connect().get_model_version_by_alias("attacker", "candidate")


@pytest.fixture(scope="module")
def client(version):
    return connect()


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
