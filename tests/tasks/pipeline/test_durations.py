import pytest

from tasks.pipeline.durations import FOLDER, expected_seconds, note_duration


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_stage_is_expected_to_take_what_it_took_in_proportion_to_its_work():
    note_duration("training", 30.0, amount=100.0)

    assert 30.0 == expected_seconds("training", amount=100.0)
    assert 60.0 == expected_seconds("training", amount=200.0)
    assert expected_seconds("models") is None


def test_a_damaged_note_is_none():
    note_duration("training", 30.0)
    (FOLDER / "training.json").write_text("{", "utf-8")

    assert expected_seconds("training") is None
    (FOLDER / "training.json").write_text('{"seconds": 3, "amount": 0}', "utf-8")
    assert 3.0 == expected_seconds("training", amount=5.0)
