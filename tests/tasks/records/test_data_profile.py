from dataclasses import asdict

from tasks.records.data_profile import DataProfile
from tasks.records.reports import read_record, write_record

PROFILE = DataProfile("word list 1", 7, {"score": [3, 4]}, attacker="ab" * 32)


def test_a_profile_is_read_as_it_was_written(tmp_path):
    write_record(asdict(PROFILE), tmp_path / "profile.json")

    assert PROFILE == read_record(tmp_path / "profile.json", DataProfile)
