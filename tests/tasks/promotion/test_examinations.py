from pathlib import Path

import pandas as pd
import pytest
from registry_project import (
    EVALUATION_KEY,
    Killed,
    enter_project,
    killed_after,
    measured,
    prompt_table,
    register,
    write_project,
)

from astra_core.errors import DataError
from tasks.promotion.examinations import TABLE_FILE, find_examination, table_of
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


def examiner(key, seen=None):
    """What examines an attacker; notes the folders that it was given."""
    table = prompt_table(rate=0.7, baseline=0.2).query("role == 'attacker'").drop(columns="role")

    def evaluate(folder):
        if seen is not None:
            seen.append(folder)
        return {"evaluation_key": key, "attacker": measured(0.7)}, table.reset_index(drop=True)

    return evaluate


def test_the_examination_of_the_registration_is_found(client, version):
    report, table = find_examination(client, version, EVALUATION_KEY)

    assert EVALUATION_KEY == report["evaluation_key"]
    assert {"attacker", "baseline"} == set(table["role"])


def test_the_table_is_the_attackers_alone_and_nothing_is_examined_again(client, version):
    seen = []
    table = table_of(client, version, EVALUATION_KEY, evaluate=examiner(EVALUATION_KEY, seen))

    assert [] == seen
    assert {"attacker"} == set(table["role"])
    assert 40 == len(table)


def test_an_examination_that_is_missing_is_made_once_and_kept(client, version):
    key, seen = "a1" * 32, []
    first = table_of(client, version, key, evaluate=examiner(key, seen))
    again = table_of(client, version, key, evaluate=examiner(key, seen))

    assert 1 == len(seen)
    assert (seen[0] / "model.safetensors").is_file()
    pd.testing.assert_frame_equal(first, again.drop(columns="role"), check_like=True)
    kept = find_examination(client, version, key)
    assert measured(0.7) == kept[0]["attacker"]


def test_another_examination_than_the_wanted_one_is_refused_and_not_kept(client, version):
    with pytest.raises(DataError, match=r"got evaluation b2b2b2b2b2b2 and now c3c3c3c3c3c3; run"):
        table_of(client, version, "b2" * 32, evaluate=examiner("c3" * 32))

    assert find_examination(client, version, "b2" * 32) is None
    assert find_examination(client, version, "c3" * 32) is None


def test_an_examination_whose_report_a_kill_cut_off_is_made_again(client, version):
    key, seen = "d4" * 32, []
    with pytest.raises(Killed):
        table_of(killed_after(1, of=["log_artifact"]), version, key, evaluate=examiner(key))
    folder = f"evaluation/{key[:16]}"
    kept = [Path(file.path).name for file in client.list_artifacts(version.run_id, folder)]

    assert [TABLE_FILE] == kept
    assert find_examination(client, version, key) is None
    table_of(client, version, key, evaluate=examiner(key, seen))
    assert 1 == len(seen)
    assert find_examination(client, version, key) is not None
