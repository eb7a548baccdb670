import math

import pytest
import torch
from each_row import each_row
from tiny_training import configured, trainer_of

from astra_core.errors import DataError
from astra_core.training.dumps import write_dump
from astra_parts.dumps import differences, main, read_dump


def test_a_dump_comes_back_in_its_order(tmp_path):
    shared = torch.arange(6.0)
    given = {"z": shared, "a": shared.reshape(2, 3).T, "b": torch.tensor([True])}
    write_dump(tmp_path / "dump", given, {"loss": math.nan})
    found = read_dump(tmp_path / "dump")

    assert list(given) == list(found)
    assert all(torch.equal(given[name], found[name]) for name in given)


@each_row(
    ("other", "reason"),
    [
        (torch.tensor([1.0, 2.5, math.nan]), "largest difference 0.5, in 1 of 3"),
        (torch.tensor([1.0, 2.0, 3.0]), "largest difference inf, in 1 of 3"),
        (torch.tensor([1.0, 2.0]), "torch.float32 (3,) against torch.float32 (2,)"),
        (torch.tensor([1, 2, 3]), "torch.float32 (3,) against torch.int64 (3,)"),
    ],
)
def test_a_difference_says_how_large_it_is(other, reason):
    first = {"same": torch.ones(2), "x": torch.tensor([1.0, 2.0, math.nan])}

    assert {"x": reason} == differences(first, {"same": torch.ones(2), "x": other})


def test_infinities_and_nans_at_the_same_place_are_equal():
    values = torch.tensor([math.inf, -math.inf, math.nan])

    assert {} == differences(
        {"x": values, "none": torch.ones(0)}, {"x": values.clone(), "none": torch.ones(0)}
    )


def test_tensors_that_one_lacks_are_named():
    found = differences({"a": torch.ones(1)}, {"b": torch.ones(1)})

    assert [("a", "only in the first"), ("b", "only in the second")] == list(found.items())


def test_small_differences_may_be_passed_over():
    first, second = {"x": torch.ones(1)}, {"x": torch.ones(1) + 1e-3}

    assert {} == differences(first, second, tolerance=1e-2)


def dump_of(folder, **changes):
    trainer = trainer_of(
        configured(dump_steps=[2], training_steps=1, batch_size=1, evaluate="none", **changes),
        folder,
    )
    trainer.train()
    return folder / "dumps" / "step_000002"


@pytest.mark.real
def test_two_runs_are_compared_by_the_tensors_of_an_update(tmp_path, capsys):
    paths = [dump_of(tmp_path / "a"), dump_of(tmp_path / "b"), dump_of(tmp_path / "c", lr=0.02)]

    assert 0 == main([str(paths[0]), str(paths[1])])
    assert "tensors are equal" in capsys.readouterr().out
    assert 1 == main([str(paths[0]), str(paths[2])])
    # The batch is the same; gradients of the second update are those of other weights.
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("gradient/")
    assert 0 == main([str(paths[0]), str(paths[2]), "--tolerance", "1e9"])


def test_a_folder_without_a_dump_is_no_difference(tmp_path, capsys):
    with pytest.raises(DataError, match="must hold a dump"):
        read_dump(tmp_path)

    assert 2 == main([str(tmp_path), str(tmp_path)])
    assert "must hold a dump" in capsys.readouterr().err
