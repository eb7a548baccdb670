import shutil

import pandas as pd
import pytest
from each_row import each_row
from registry_project import RUN_KEY, register, without_pictures, write_project

from tasks.promotion.known_prompts import (
    KNOWN_FILE,
    KNOWN_FOLDER,
    fingerprint,
    fingerprints_of,
    known_prompts,
    write_known,
)
from tasks.tracking.store import connect


def write_splits(folder, **texts):
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.parquet"):
        path.unlink()
    for split, own in texts.items():
        frame = pd.DataFrame({"prompt_id": own, "text": own}, dtype=str)
        frame.to_parquet(folder / f"{split}.parquet", index=False)
    return folder


@each_row(
    "other",
    [
        "how are you, josé?",
        "  How\tare \n you, José? ",
        "How are you, Jose\u0301?",
        "\uff28ow are you, José\uff1f",
        "How are\u200b you, Jo\u00adsé?",
        "HOW ARE\u00a0YOU, JOSÉ?",
    ],
)
def test_a_text_is_known_however_it_is_spelled(other):
    assert fingerprint("How are you, José?") == fingerprint(other)


@each_row("other", ["How are you, José", "How are you, Jose?", "Howare you, José?"])
def test_another_text_is_another(other):
    assert fingerprint("How are you, José?") != fingerprint(other)


def test_all_splits_count_and_rejected_rows_do_not(tmp_path):
    folder = write_splits(tmp_path, train=["a"], dev=["b"], test=["c"], rejected=["d"])

    assert {fingerprint(text) for text in "abc"} == fingerprints_of(folder)
    assert frozenset() == fingerprints_of(tmp_path / "none")


def test_the_file_holds_a_line_for_each_and_no_text(tmp_path):
    folder = write_splits(tmp_path / "valid", train=["you are", "You  ARE", "why ?"], dev=[])
    write_known(folder, tmp_path / KNOWN_FILE)

    lines = (tmp_path / KNOWN_FILE).read_text().splitlines()
    assert sorted({fingerprint("you are"), fingerprint("why ?")}) == lines


@pytest.fixture
def project(in_memory):
    return in_memory


@pytest.mark.real
def test_every_version_tells_what_it_met_and_the_present_data_too(project, monkeypatch):
    without_pictures(monkeypatch)
    valid = project / "data" / "valid"
    for number, text in enumerate(("first", "second")):
        write_project(project, seed=number, run_key=f"{number:04d}" * 16)
        write_splits(valid, train=[text])
        register()
    write_splits(valid, train=["third"])
    found = known_prompts(connect(), "attacker")

    assert {fingerprint(text) for text in ("first", "second", "third")} == found.fingerprints
    assert () == found.unrecorded


@pytest.mark.real
def test_a_record_that_many_versions_share_is_fetched_once(candidate_in_memory, monkeypatch):
    client, looked = connect(), []
    list_artifacts = client.list_artifacts

    def noted(*where):
        looked.append(where)
        return list_artifacts(*where)

    monkeypatch.setattr(client, "list_artifacts", noted)
    first = client.get_model_version("attacker", "1")
    for _ in range(3):
        run = client.create_run("0").info.run_id
        client.log_text(run, "a record", f"{KNOWN_FOLDER}/{KNOWN_FILE}")
        client.create_model_version("attacker", first.source, run, tags=first.tags)
    shutil.rmtree(candidate_in_memory / "data/valid")
    known = known_prompts(client, "attacker")

    assert {"a", "record"} == known.fingerprints
    assert 1 == len(looked)


@pytest.mark.real
def test_a_version_without_a_record_is_named(project):
    client = connect()
    client.create_registered_model("attacker")
    run = client.create_run("0")
    client.create_model_version("attacker", source=str(project), run_id=run.info.run_id)

    assert ("1",) == known_prompts(client, "attacker").unrecorded


@pytest.mark.real
def test_the_record_lies_in_the_run_of_the_training(candidate_in_memory):
    client = connect()
    run = client.get_run(client.get_model_version("attacker", "1").run_id)
    names = {file.path for file in client.list_artifacts(run.info.run_id, "data")}

    assert f"data/{KNOWN_FILE}" in names
    assert RUN_KEY == run.data.tags["astra.run_key"]
