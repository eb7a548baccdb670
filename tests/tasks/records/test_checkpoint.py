import json
import math
from dataclasses import asdict, replace

import pytest
import torch
from each_row import each_row

from astra_core.errors import CheckpointError
from astra_core.training.checkpoint import Checkpoint, CheckpointStore
from tasks.pipeline.continuing import last_files
from tasks.records.checkpoint import (
    CheckpointNote,
    Journal,
    read_note,
    step_table,
    take_over,
    write_checkpoint,
)

NOTE = CheckpointNote(updates_key="5f" * 32, training_steps=3, num_done=3, is_exported=True)


@pytest.fixture
def run(tmp_path):
    """The folder of a run with three checkpoints and three models that were the best."""
    store = CheckpointStore(tmp_path / "run/checkpoints", keep=9)
    for step in (1, 2, 3):
        store.save_model(f"best_{step}", lambda folder: (folder / "w").write_bytes(b"w"))
        best = {"model": f"best_{step}", "before": {"model": "best_1"}}
        store.save(Checkpoint(step, {"x": torch.ones(2)}, {"best": best}, is_partial=step == 3))
    (tmp_path / "run/steps.jsonl").write_text('{"step": 1}\n')
    return tmp_path / "run"


def test_the_last_state_and_all_that_it_refers_to_is_exported(run, tmp_path):
    write_checkpoint(NOTE, run, tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}

    # A whole one beside one that was cut short, from which a longer run resumes.
    assert {"step_000002", "step_000003_part", "best_1", "best_2", "best_3"} == {
        name for name in names if "_" in name
    }
    assert names >= {"checkpoint.json", "steps.jsonl"}
    assert NOTE == read_note(last_files(tmp_path / "out"))


def test_what_was_exported_can_be_taken_over(run, tmp_path):
    write_checkpoint(NOTE, run, tmp_path / "out")
    take_over(last_files(tmp_path / "out"), tmp_path / "other")
    found = CheckpointStore(tmp_path / "other/checkpoints").newest()

    assert (3, True) == (found.step, found.is_partial)
    assert (run / "steps.jsonl").read_text() == (tmp_path / "other/steps.jsonl").read_text()
    assert (tmp_path / "other/checkpoints/best_1/w").is_file()
    assert not (tmp_path / "other/checkpoints/checkpoint.json").exists()


def test_a_state_that_is_not_to_be_exported_leaves_its_note(run, tmp_path):
    write_checkpoint(replace(NOTE, is_exported=False), run, tmp_path / "out")

    assert ["checkpoint.json"] == [path.name for path in (tmp_path / "out").iterdir()]
    assert not read_note(last_files(tmp_path / "out")).is_exported


def test_a_run_that_saved_nothing_exports_nothing(tmp_path):
    write_checkpoint(NOTE, tmp_path / "none", tmp_path / "out")

    assert not read_note(last_files(tmp_path / "out")).is_exported


@each_row("text", ["", "[]", "{}", json.dumps(asdict(NOTE) | {"num_done": "x"})])
def test_a_damaged_note_is_none(tmp_path, text):
    (tmp_path / "checkpoint.json").write_text(text)

    assert read_note(last_files(tmp_path)) is None
    assert read_note({}) is None


@pytest.mark.parametrize("name", ["step_000003_part/state.safetensors", "best_3/w", "best_1/w"])
def test_damaged_files_are_not_taken_over(run, tmp_path, name):
    write_checkpoint(NOTE, run, tmp_path / "out")
    for file in {name, name.replace("3_part", "2")}:
        (tmp_path / "out" / file).write_bytes(b"damaged")
    with pytest.raises(CheckpointError):
        take_over(last_files(tmp_path / "out"), tmp_path / "other")

    assert not (tmp_path / "other/checkpoints").exists()


def test_a_journal_drops_what_comes_after_the_checkpoint_and_a_torn_line(tmp_path):
    path = tmp_path / "steps.jsonl"
    journal = Journal(path, last_step=0)
    for step in (1, 2, 3):
        journal.add({"step": step, "train/loss": math.nan})
    with path.open("a") as file:
        file.write('{"step": 4, "tra')
    rows = Journal(path, last_step=2).rows()

    assert [1, 2] == [row["step"] for row in rows]
    assert rows[0]["train/loss"] is None


def test_the_table_has_a_row_for_the_untrained_attacker_and_one_for_each_update():
    rows = [{"step": 1, "training_step": 1, "train/loss": 0.5}, {"step": 2, "training_step": 1}]
    table = step_table(rows, {0: {"eval/x": 0.25}, 2: {"eval/x": 0.75}})

    assert "step,training_step,eval/x,train/loss\n0,0,0.25,\n1,1,,0.5\n2,1,0.75,\n" == table


def test_the_table_is_the_same_whatever_order_its_figures_come_in():
    rows = [{"step": 1, "training_step": 1, "train/loss": 0.5, "rollout/reward": 0.25}]
    figures = {"eval/b": 0.25, "eval/a": 0.75}
    tables = [
        step_table([order(row) for row in rows], {0: order(figures), 1: order(figures)})
        for order in (dict, lambda row: dict(sorted(row.items())))
    ]

    assert tables[0] == tables[1]
    assert tables[0].startswith("step,training_step,eval/a,eval/b,rollout/reward,train/loss\n")
