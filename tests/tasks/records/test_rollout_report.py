from dataclasses import asdict

from tasks.records.reports import read_record, write_record
from tasks.records.rollout_report import RolloutsRecord

RECORD = RolloutsRecord(
    num_prompts=2,
    num_turns=24,
    score_mean=0.25,
    success_rate=0.125,
    reward_mean=0.5,
    target_nll_mean=3.0,
    scorer="phrases:1",
    system_precision="fp32",
    checks={"success": True},
)


def test_what_was_written_is_read(tmp_path):
    write_record(RECORD, tmp_path / "rollouts.json")

    assert RECORD == read_record(tmp_path / "rollouts.json", RolloutsRecord)
    assert 11 == len(asdict(RECORD))
