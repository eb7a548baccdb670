import pytest
from each_row import each_row

from astra_core.errors import DataError
from astra_core.files import write_json
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.reports import read_record, write_record

NOTE = AttackerNote("d" * 64, run_key="k" * 64, metric="eval/score_mean", value=0.5, kept="last")


def test_what_was_written_is_read(tmp_path):
    write_record(NOTE, tmp_path / ATTACKER_FILE)

    assert NOTE == read_record(tmp_path / ATTACKER_FILE, AttackerNote)


def test_an_attacker_that_was_not_evaluated_has_no_value(tmp_path):
    write_record(AttackerNote("d" * 64, value=float("nan")), tmp_path / ATTACKER_FILE)

    assert read_record(tmp_path / ATTACKER_FILE, AttackerNote).value is None


@each_row(("record", "key"), [({}, "digest"), ({"digest": "d", "kept": "first"}, "kept")])
def test_a_damaged_note_names_the_key(tmp_path, record, key):
    write_json(record, tmp_path / ATTACKER_FILE)
    with pytest.raises(DataError, match=f"must hold {key}"):
        read_record(tmp_path / ATTACKER_FILE, AttackerNote)
