"""Processes on one machine, over gloo, as torchrun starts them."""

import json
import shutil

import numpy as np
import pytest
import torch
from distributed_rollouts import experience_of
from distributed_training import AHEAD, CONFIG
from each_row import each_row
from started_processes import SIZE, as_numbers, ended, started
from tiny_training import configured, trainer_of, weights_of

from astra_core.errors import TrainingError
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.distribution.distributed import World


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a run of two processes leaves."""
    folder = tmp_path_factory.mktemp("whole")
    statuses = ended(started(folder))
    assert [0, 0] == [status for status, _ in statuses], statuses
    return folder


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """What a run leaves whose second process dies, and how both ended."""
    folder = tmp_path_factory.mktemp("lost")
    return folder, ended(started(folder, "die"))


@pytest.mark.real
def test_two_processes_train_the_weights_of_one_with_the_doubled_batch(whole, tmp_path):
    alone = trainer_of(configured(batch_size=4, **CONFIG), tmp_path / "alone")
    alone.train()
    first, second = ((whole / f"weights_{rank}").read_bytes() for rank in range(SIZE))

    assert first == second
    gap = np.abs(as_numbers(first) - as_numbers(weights_of(alone)))
    assert 1e-6 >= gap.max()
    assert (whole / "rows_0").read_text() == (whole / "rows_1").read_text()
    names = [{p.name for p in folder.iterdir()} for folder in (whole / "run", tmp_path / "alone")]
    assert names[0] == names[1]


@pytest.mark.wide
def test_two_processes_share_each_evaluation_and_know_what_one_finds(whole, tmp_path):
    alone = trainer_of(configured(batch_size=4, **CONFIG), tmp_path / "alone")
    alone.train()
    said = [json.loads((whole / f"said_{rank}").read_text()) for rank in range(SIZE)]
    figures = [point.metrics for point in alone.progress.evaluations]

    assert said[0]["figures"] == said[1]["figures"]
    assert len(figures) == len(said[0]["figures"])
    for own, other in zip(figures, said[0]["figures"], strict=True):
        assert own == pytest.approx(other, abs=1e-4)
    # Four prompts; the best weights are examined once more as they are put back.
    assert [[2] * (len(figures) + 1)] * SIZE == [own["examined"] for own in said]


@pytest.mark.wide
def test_two_processes_collect_ahead_what_one_collects(tmp_path):
    alone = trainer_of(configured(batch_size=4, **{**CONFIG, **AHEAD}), tmp_path / "alone")
    alone.train()
    statuses = ended(started(tmp_path, "ahead"))
    assert [0, 0] == [status for status, _ in statuses], statuses
    first, second = ((tmp_path / f"weights_{rank}").read_bytes() for rank in range(SIZE))

    assert first == second
    assert np.abs(as_numbers(first) - as_numbers(weights_of(alone))).max() <= 1e-6
    held = [CheckpointStore(own).newest().tensors for own in (tmp_path / "run", alone.store.folder)]
    assert held[0].keys() == held[1].keys()
    assert "ahead/000003" in held[0]


# Of 60 turns 3 fail, all of them among the 24 of one process.
LIMITS = (0.06, 0.04)


@pytest.fixture(scope="module")
def experiences(tmp_path_factory):
    """By limit, what each of two processes makes of the same rollouts."""
    folder = tmp_path_factory.mktemp("experiences")
    statuses = ended(started(folder, *map(str, LIMITS), script="distributed_rollouts.py"))
    assert [0, 0] == [status for status, _ in statuses], statuses
    found = [json.loads((folder / f"experience_{rank}.json").read_text()) for rank in range(SIZE)]
    return {limit: [each[str(limit)] for each in found] for limit in (*LIMITS, "runs")}


@pytest.mark.wide
@pytest.mark.parametrize("limit", LIMITS)
def test_processes_share_the_rollouts_and_count_failures_over_all_of_them(experiences, limit):
    first, second = experiences[limit]
    alone = experience_of(limit)

    assert first["said"] == second["said"]
    # One process also names the sampler, which is the test's own.
    assert alone["said"].endswith(first["said"])
    assert bool(alone["said"]) is bool(first["said"])
    assert (limit == 0.04) is ("turns failed" in alone["said"])
    assert alone["asked"][::2] == first["asked"]
    assert alone["asked"][1::2] == second["asked"]
    assert limit == first["limit"]


@pytest.mark.wide
def test_processes_share_the_runs_of_a_prompt_too(experiences):
    first, second = experiences["runs"]
    alone = experience_of(1.0, runs=3)

    assert alone["said"] == first["said"] == second["said"]
    assert [0, 1, 2] * 5 == [run for _, run in alone["asked"]]
    assert (alone["asked"][::2], alone["asked"][1::2]) == (first["asked"], second["asked"])


@each_row("size", [1, 2, 3, 7])
def test_the_shares_of_all_processes_make_the_whole_in_order(size):
    values = ["a", "b", "c", "d", "e"]
    shares = [World(rank, size).share(values) for rank in range(size)]

    class Meeting(World):
        def gather(self, _):
            return shares

    assert values == Meeting(0, size).whole(shares[0])


@pytest.mark.wide
def test_a_run_of_two_processes_continues_where_it_stopped(whole, lost, tmp_path):
    cut = shutil.copytree(lost[0], tmp_path / "cut")
    assert not (cut / "weights_0").exists()
    ended(started(cut))

    assert (whole / "weights_0").read_bytes() == (cut / "weights_0").read_bytes()


@pytest.mark.wide
def test_the_clock_of_the_first_process_ends_all_amid_an_experience(tmp_path):
    assert [0, 0] == [status for status, _ in ended(started(tmp_path, "late"))]

    told = [(tmp_path / f"rows_{rank}").read_text() for rank in range(SIZE)]
    assert told[0] == told[1]
    assert "is_partial=True, stopped_because='1800 seconds have passed'" in told[0]
    weights = [(tmp_path / f"weights_{rank}").read_bytes() for rank in range(SIZE)]
    assert weights[0] == weights[1]


# A killed process of a stage, whose launcher ends the others, is in the middle tier.
@pytest.mark.wide
def test_a_process_that_dies_ends_the_others_instead_of_hanging_them(lost):
    (first, said), (second, _) = lost[1]

    assert 7 == second
    assert first not in {0, 7}
    assert "every process must take part until the end" in said


@pytest.mark.wide
def test_a_process_that_never_comes_is_not_waited_for_for_ever(tmp_path):
    ((status, said),) = ended(started(tmp_path, "alone", ranks=[0]))

    assert 0 != status
    assert "every process must take part" in said


def test_one_process_needs_no_communication(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    world = World.join()
    tensor = torch.ones(2)
    world.add([tensor])
    world.barrier()
    world.check_equal("a", "it")
    world.leave()

    assert (0, 1, True) == (world.rank, world.size, world.is_first)
    assert [1.0, 1.0] == tensor.tolist()
    assert ["a", "b"] == world.whole(world.share(["a", "b"]))
    assert {"a": 2.0} == world.sum_of({"a": 2.0})
    assert "text" == world.first_says("text")


def test_processes_that_disagree_are_stopped(monkeypatch):
    world = World(rank=1, size=2)
    monkeypatch.setattr(World, "first_says", lambda _self, _text: "other")

    with pytest.raises(TrainingError, match="the experience must be the same in every process"):
        world.check_equal("own", "the experience")
