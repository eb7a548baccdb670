import json
from dataclasses import asdict, replace

import pytest
from each_row import each_row
from registry_project import write_reports
from tiny_training import configured, trainer_of

from astra_core.errors import DataError
from astra_core.samplers.tree import TreeSampler
from tasks.records.reports import read_record, write_record
from tasks.records.signal import faint_signal
from tasks.records.training import (
    BestMeasured,
    Measured,
    TrainingRecord,
    TrainingSummary,
    record_of,
    summary_of,
)

METRIC = "eval/attack_success_rate"
RECORD = TrainingRecord(
    run_key="5f" * 32,
    checkpoint_digest="c0" * 32,
    training_steps=3,
    optimizer_steps=6,
    engine="plain",
    training_precision="fp32",
    system_precision="bf16",
    num_nonfinite=0,
    num_empty_experiences=1,
    stopped_because="all steps done",
    first=Measured(METRIC, 0.25),
    best=BestMeasured(METRIC, None, 2),
    evaluations=({"training_step": 0, "step": 0, METRIC: 0.25},),
)


def test_a_record_survives_its_file(tmp_path):
    write_record(RECORD, tmp_path / "t.json")

    assert RECORD == read_record(tmp_path / "t.json", TrainingRecord)


def test_the_keys_in_the_file_are_those_of_the_record(tmp_path):
    write_record(RECORD, tmp_path / "t.json")
    written = json.loads((tmp_path / "t.json").read_text())

    assert set(asdict(RECORD)) == set(written)
    assert {"metric": METRIC, "value": None, "training_step": 2} == written["best"]
    assert [{"training_step": 0, "step": 0, METRIC: 0.25}] == written["evaluations"]


def test_an_old_report_is_one_line(tmp_path):
    write_reports(tmp_path)
    path = tmp_path / "reports/training.json"
    found = json.loads(path.read_text())
    del found["checkpoint_digest"]
    path.write_text(json.dumps(found))

    with pytest.raises(DataError, match="must hold checkpoint_digest, got a report without it"):
        read_record(path, TrainingRecord)


def test_a_training_that_was_not_evaluated_has_no_figures(tmp_path):
    record = replace(RECORD, first=None, best=None, kept="last", evaluations=())
    write_record(record, tmp_path / "t.json")

    assert record == read_record(tmp_path / "t.json", TrainingRecord)


def test_a_report_of_an_earlier_version_kept_the_best(tmp_path):
    write_record(RECORD, tmp_path / "t.json")
    found = json.loads((tmp_path / "t.json").read_text())
    del found["kept"]
    (tmp_path / "t.json").write_text(json.dumps(found))

    assert "best" == read_record(tmp_path / "t.json", TrainingRecord).kept


@each_row(
    ("first", "value", "line"),
    [
        (0.25, 0.5, "attack success rate on dev 0.250 -> 0.500 (step 2 of 3; all steps done)"),
        (None, 0.5, "attack success rate on dev 0.500 (step 2 of 3; all steps done)"),
        (0.25, None, "the attacker as it was last, not evaluated (step 2 of 3; all steps done)"),
    ],
)
def test_the_summary_is_one_line(first, value, line):
    summary = TrainingSummary(
        training_steps=3,
        optimizer_steps=6,
        metric=METRIC,
        first=first,
        value=value,
        kept="best",
        training_step=2,
        stopped_because="all steps done",
    )

    assert line == summary.summary()
    warned = replace(summary, kl_warning="experience 1 moved far", signal_warning="by chance")
    told = "; WARNING: experience 1 moved far; WARNING: by chance)"
    assert f"{line[:-1]}{told}" == warned.summary()


def test_a_training_without_an_update_says_so():
    idle = trainer_of(configured(), is_evaluated=False)
    told = summary_of(idle)
    idle.progress.num_nonfinite = 1

    assert f"WARNING: {told.idle_warning}" in told.summary()
    assert "its margin (training.algorithm.options)" in told.idle_warning
    assert not summary_of(idle).idle_warning  # skipped updates have a message of their own


@pytest.mark.real
def test_the_record_says_how_far_each_experience_moved_the_attacker():
    config = configured(training_steps=2, kl={"warn_per_experience_nats": 1e-4})
    trainer = trainer_of(config, is_evaluated=False)
    trainer.train()

    record = record_of(trainer, summary_of(trainer), run_key="5f" * 32, digest="c0" * 32)

    assert [1, 2] == [move["training_step"] for move in record.moves]
    assert all(move["nats"] > 1e-4 for move in record.moves)
    assert record.reply_signal is None
    assert "nats per probe, beyond training.kl.warn_per_experience_nats" in record.kl_warning


@pytest.mark.real
def test_the_record_has_the_first_experience_s_signal():
    class TwoReplies(TreeSampler):
        def __init__(self, options, **others):
            super().__init__(options.model_copy(update={"num_responses": 2}), **others)

    trainer = trainer_of(configured(training_steps=2), is_evaluated=False, sampler=TwoReplies)
    signals = [report.metrics["rollout/reply_signal"] for report in trainer.steps()]

    record = record_of(trainer, summary_of(trainer), run_key="5f" * 32, digest="c0" * 32)

    assert signals[0] == record.reply_signal
    assert faint_signal(signals[0]) == record.signal_warning
