import os
import shutil
from dataclasses import replace

import pytest
import torch
from each_row import each_row
from torch.distributed.device_mesh import init_device_mesh

from astra_core.errors import CheckpointError
from astra_core.files import read_json, write_json
from astra_core.training.checkpoint import (
    PARTS,
    WHOLE,
    Checkpoint,
    CheckpointStore,
    load_checkpoint,
    read_tensors,
    write_tensors,
)
from astra_core.training.distribution.distributed import World


def checkpoint(step, *, best=""):
    tensors = {
        "model/weight": torch.full((2, 3), float(step)),
        "turned": torch.arange(6).reshape(2, 3).T,
        "random": torch.tensor([1, 255], dtype=torch.uint8),
        "scalar": torch.tensor(step, dtype=torch.float64),
    }
    return Checkpoint(step, tensors, {"best": {"model": best}, "step": step, "value": 0.1})


def saved(folder, *steps, keep=2):
    store = CheckpointStore(folder, keep=keep)
    for step in steps:
        store.save(checkpoint(step))
    return store


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    given = checkpoint(40)
    found = load_checkpoint(CheckpointStore(tmp_path).save(given))

    assert given.step == found.step
    assert given.record == found.record
    assert given.tensors.keys() == found.tensors.keys()
    for name, tensor in given.tensors.items():
        assert tensor.dtype == found.tensors[name].dtype
        assert torch.equal(tensor, found.tensors[name])


def test_the_newest_comes_back(tmp_path):
    assert saved(tmp_path, 3, 20, 100).newest().step == 100


def test_an_empty_store_has_none(tmp_path):
    assert CheckpointStore(tmp_path / "nothing").newest() is None


@each_row("keep", [1, 2, 5])
def test_the_newest_are_kept(tmp_path, keep):
    saved(tmp_path, *range(6), keep=keep)

    assert [f"step_{step:06d}" for step in range(6)][-keep:] == names(tmp_path)


@each_row("keep", [1, 2])
def test_whole_ones_are_kept_beside_one_that_was_cut_short(tmp_path, keep):
    store = saved(tmp_path, 1, 2, 3, keep=keep)
    store.save(replace(checkpoint(4), is_partial=True))

    whole = [f"step_{step:06d}" for step in (1, 2, 3)][-keep:]
    assert [*whole, "step_000004_part"] == names(tmp_path)
    assert (4, True) == (store.newest().step, store.newest().is_partial)
    assert (3, False) == (store.newest(is_whole=True).step, store.newest(is_whole=True).is_partial)


def test_a_run_that_continues_removes_the_one_that_was_cut_short(tmp_path):
    store = saved(tmp_path, 1)
    store.save(replace(checkpoint(2), is_partial=True))
    store.save(checkpoint(2))

    assert ["step_000001", "step_000002"] == names(tmp_path)


DAMAGES = {
    "a changed byte": lambda path: flip(path / "state.safetensors"),
    "a cut file": lambda path: os.truncate(path / "state.safetensors", 50),
    "a missing file": lambda path: (path / "state.safetensors").unlink(),
    "a changed record": lambda path: write_json({"best": {}}, path / "record.json"),
    "a broken record": lambda path: (path / "record.json").write_text("{"),
    "no record": lambda path: (path / "record.json").unlink(),
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "a broken manifest": lambda path: (path / "manifest.json").write_text("[1"),
    "an empty manifest": lambda path: (path / "manifest.json").write_text("{}"),
    "nothing": lambda path: [file.unlink() for file in path.iterdir()],
    "another format": lambda path: write_json(
        {**read_json(path / "manifest.json"), "format": 99}, path / "manifest.json"
    ),
}


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@each_row("damage", DAMAGES)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_is_used(tmp_path, logged, damage):
    logged.clear()
    store = saved(tmp_path, 1, 2)
    DAMAGES[damage](tmp_path / "step_000002")

    assert store.newest().step == 1
    (line,) = logged
    assert "step_000002" in line
    assert "the previous one is used" in line


@each_row("damage", DAMAGES)
def test_a_run_continues_beside_a_damaged_checkpoint(tmp_path, damage):
    store = saved(tmp_path, 1, 3)
    DAMAGES[damage](tmp_path / "step_000003")
    store.save(checkpoint(2))

    assert ["step_000001", "step_000002"] == names(tmp_path)
    assert store.newest().step == 2
    store.save(checkpoint(3))
    assert ["step_000002", "step_000003"] == names(tmp_path)
    assert store.newest().step == 3


def test_a_run_that_is_begun_again_does_not_continue_from_the_one_before(tmp_path):
    store = saved(tmp_path, 8, 9)
    store.save(checkpoint(0))

    assert store.newest().step == 0


def test_when_every_checkpoint_is_damaged_there_is_no_silent_start_again(tmp_path, logged):
    store = saved(tmp_path, 1, 2)
    for name in names(tmp_path):
        flip(tmp_path / name / "state.safetensors")

    with pytest.raises(CheckpointError, match="must hold an undamaged checkpoint, got 2 damaged"):
        store.newest()
    # The error is the one line.
    assert [] == logged


def write_model(folder):
    (folder / "weights").write_text("weights")


def test_models_that_a_kept_checkpoint_refers_to_are_kept_and_no_others(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    for step, best in ((0, 0), (1, 1), (2, 1), (3, 1), (4, 4)):
        if step == best:
            store.save_model(f"best_{step:06d}", write_model)
        store.save(checkpoint(step, best=f"best_{best:06d}"))

    assert ["best_000001", "best_000004", "step_000003", "step_000004"] == names(tmp_path)
    store.save(checkpoint(5, best="best_000004"))
    assert ["best_000004", "step_000004", "step_000005"] == names(tmp_path)


def test_a_best_model_is_not_removed_while_what_refers_to_it_cannot_be_read(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    store.save_model("best_000001", write_model)
    store.save(checkpoint(1, best="best_000001"))
    (tmp_path / "step_000001" / "record.json").unlink()
    store.save(checkpoint(2))

    assert "best_000001" in names(tmp_path)


def test_a_model_is_checked_before_it_is_believed(tmp_path):
    store = CheckpointStore(tmp_path)
    store.save_model("best_000001", write_model)

    assert (store.model("best_000001") / "weights").read_text() == "weights"
    (tmp_path / "best_000001" / "weights").write_text("others")
    with pytest.raises(CheckpointError, match=r"changed bytes in \['weights'\]"):
        store.model("best_000001")
    with pytest.raises(CheckpointError, match="must be complete"):
        store.model("best_000002")


@each_row("stage", ["tensors", "record", "manifest"])
def test_a_save_that_is_cut_off_leaves_the_state_before(tmp_path, monkeypatch, stage):
    store = saved(tmp_path, 1)
    before = names(tmp_path)

    def cut(*_arguments, **_options):
        raise KeyboardInterrupt

    places = {
        "tensors": "safetensors.torch.save_file",
        "record": "astra_core.training.checkpoint.write_json",
        "manifest": "astra_core.training.checkpoint._write_manifest",
    }
    with monkeypatch.context() as patch:
        patch.setattr(places[stage], cut)
        with pytest.raises(KeyboardInterrupt):
            store.save(checkpoint(2))

    assert before == names(tmp_path)
    assert store.newest().step == 1


def test_what_a_killed_process_left_half_written_is_no_checkpoint(tmp_path):
    store = saved(tmp_path, 1)
    shutil.copytree(tmp_path / "step_000001", tmp_path / ".step_000002.partial")

    assert store.newest().step == 1
    store.save(checkpoint(2))
    assert ["step_000001", "step_000002"] == names(tmp_path)


TENSORS = {
    "model/layer": torch.arange(15.0).reshape(5, 3),
    "model/turned": torch.arange(6).reshape(2, 3).T,
    "optimizer/0/step": torch.tensor(3.0),
    "random/torch": torch.tensor([1, 255], dtype=torch.uint8),
    "reward/none": torch.zeros(0, 4, dtype=torch.float64),
}


@pytest.fixture(scope="module")
def mesh():
    """Of a group of one process, whose part of a divided tensor is the whole."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


def divided(mesh):
    from torch.distributed.tensor import Shard, distribute_tensor

    return distribute_tensor(TENSORS["model/layer"], mesh, [Shard(0)])


def assert_equal_tensors(found):
    assert TENSORS.keys() == found.keys()
    for name, given in TENSORS.items():
        assert given.dtype == found[name].dtype
        assert torch.equal(given, found[name])


def test_one_process_writes_one_file(tmp_path):
    write_tensors(TENSORS, tmp_path, world=World())

    assert [WHOLE] == [file.name for file in tmp_path.iterdir()]
    assert_equal_tensors(read_tensors(tmp_path))


def test_parts_are_read_as_whole_tensors(mesh, tmp_path):
    write_tensors({**TENSORS, "model/layer": divided(mesh)}, tmp_path, world=World(size=2))

    assert [PARTS] == [file.name for file in tmp_path.iterdir()]
    assert {".safetensors"} == {file.suffix for file in (tmp_path / PARTS).iterdir()}
    assert_equal_tensors(read_tensors(tmp_path))


def test_a_process_other_than_the_first_writes_only_what_is_divided(mesh, tmp_path):
    write_tensors({**TENSORS, "model/layer": divided(mesh)}, tmp_path, world=World(rank=1, size=2))

    assert {"model/layer"} == read_tensors(tmp_path).keys()


def test_a_part_that_cannot_be_written_is_an_error_of_every_process(mesh, tmp_path):
    (tmp_path / PARTS / "shard-00001-model-00001-of-00001.safetensors").mkdir(parents=True)

    with pytest.raises(CheckpointError, match="must be able to write its part"):
        write_tensors(TENSORS, tmp_path, world=World(size=2))
