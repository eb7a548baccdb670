import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh

from astra_core.errors import CheckpointError
from astra_core.training.distribution.distributed import World
from astra_core.training.state_files import PARTS, WHOLE, read_tensors, write_tensors

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
