import json
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from each_row import each_row
from tiny_training import choice, configured, trainer_of, weights_of
from two_weights import Batch, TwoWeights, updates_of

from astra_core.config import Part
from astra_core.errors import PluginError, TrainingError
from astra_core.training.distribution.distributed import World
from astra_core.training.harness import Experience
from astra_core.training.progress import StepReport
from astra_core.training.update import Update, refuse_many_nonfinite
from astra_parts.dumps import read_dump

pytestmark = pytest.mark.routes

FREEZE = next(
    case
    for case in json.loads(
        (Path(__file__).parents[2] / "vectors" / "nip_update_schedules.json").read_text("utf-8")
    )["cases"]
    if "freeze" in case
)


def test_a_frozen_part_keeps_no_gradient_for_the_day_it_thaws():
    frozen = Part(pattern=r"algorithm\.0", active="periodic", period=4, start=3, stop=4)
    updates, algorithm = updates_of(parts={"first": frozen})
    seen = []
    for step in range(4):
        update = updates.apply([Batch()], training_step=step)
        # The norm is that of the weights that move.
        assert update.grad_norm == pytest.approx(1.0 if step < 3 else 2**0.5)
        seen.append(algorithm.own[0].item())

    assert FREEZE["correct_param_after_each"] == seen
    assert -4.0 == algorithm.own[1].item()


@dataclass(frozen=True)
class Logged:
    """A batch with a loss and a figure of its own."""

    weight: float
    total: float
    figure: float
    num_tokens: int = 5


class Logging(TwoWeights):
    """Loss ``total + total * (first + second)``, and a figure to log."""

    def step(self, batch):
        return batch.total * (1 + self.own[0] + self.own[1]), {"figure": batch.figure}


@each_row(("is_first", "rollout_s", "score_s"), [(True, 7.0, 1.5), (False, 0.0, 0.0)])
def test_the_first_update_of_an_experience_is_charged_with_its_seconds(
    is_first, rollout_s, score_s
):
    update = Update(0.5, 2.0, 1e-3, 30, is_skipped=False, metrics={"kl": 0.25}, train_s=3.0)
    said = Experience(4, (), (), {"rollout/score_mean": 0.1}, rollout_s=7.0, score_s=1.5)
    expected = StepReport(
        step=12,
        training_step=5,
        loss=0.5,
        grad_norm=2.0,
        lr=1e-3,
        num_tokens=30,
        is_skipped=False,
        metrics={"rollout/score_mean": 0.1, "train/kl": 0.25},
        timings={
            "time/rollout_s": rollout_s,
            "time/score_s": score_s,
            "time/train_s": 3.0,
            "time/eval_s": 0.0,
            "time/tokens_per_s": 30 / 3.0,
            "memory/peak_mib": 9.0,
        },
    )

    assert expected == update.report(12, said, {"memory/peak_mib": 9.0}, is_first=is_first)


def test_loss_and_figures_of_a_window_are_means_by_weight():
    updates, algorithm = updates_of(kind=Logging)
    window = [Logged(1.0, total=2.0, figure=8.0), Logged(3.0, total=-6.0, figure=4.0)]
    update = updates.apply(window, training_step=0)

    # (2 - 6) / 4, and (1 * 8 + 3 * 4) / 4; the gradient of both weights is that of the loss.
    assert (-1.0, {"figure": 5.0}) == (update.loss, update.metrics)
    assert [1.0, 1.0] == [weight.item() for weight in algorithm.own]
    assert pytest.approx(2**0.5) == update.grad_norm
    assert (1.0, 10, False) == (update.lr, update.num_tokens, update.is_skipped)


def test_an_update_lasts_no_longer_than_the_call():
    updates, _ = updates_of()
    start = time.perf_counter()
    update = updates.apply([Batch()], training_step=0)

    assert 0.0 < update.train_s < time.perf_counter() - start


def half_of_two(rank, folder):
    """What process ``rank`` of two has after an update by its share of a window."""
    store = torch.distributed.FileStore(str(folder / "store"), 2)
    torch.distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    try:
        updates, algorithm = updates_of(kind=Logging, world=World(rank, 2))
        window = [Logged(1.0, total=2.0, figure=8.0), Logged(3.0, total=-6.0, figure=4.0)]
        update = updates.apply(window, training_step=0)
        return update.loss, update.metrics, [weight.item() for weight in algorithm.own]
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.real
def test_two_processes_make_of_a_window_what_one_makes(tmp_path, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    # Forked, as a new one would read torch again, which takes seconds.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        other = pool.submit(half_of_two, 1, tmp_path)
        own = half_of_two(0, tmp_path)

    # The numbers of one process, above, in both.
    assert [(-1.0, {"figure": 5.0}, [1.0, 1.0])] * 2 == [own, other.result()]


def test_a_window_without_weight_is_divided_by_one():
    updates, _ = updates_of(kind=Logging)
    update = updates.apply([Logged(0.0, total=3.0, figure=8.0)], training_step=0)

    assert (3.0, {"figure": 0.0}) == (update.loss, update.metrics)


@each_row("total", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_moves_nothing_and_is_forgotten(total):
    updates, algorithm = updates_of(kind=Logging)
    update = updates.apply([Logged(1.0, total=total, figure=8.0)], training_step=0)

    assert update.is_skipped
    assert [0.0, 0.0] == [weight.item() for weight in algorithm.own]
    assert [None, None] == [weight.grad for weight in algorithm.own]


@dataclass(frozen=True)
class Shaped:
    """A batch with a loss of its own: a function of the first weight, which is 0."""

    total: Callable
    weight: float = 1.0
    num_tokens: int = 1


class Shaping(TwoWeights):
    def step(self, batch):
        return batch.total(self.own[0]), {}


@each_row(
    ("total", "loss", "norm"),
    [
        # The square root is 0 at 0, and its slope 1 / (2 * 0).
        (torch.sqrt, 0.0, math.inf),
        (lambda weight: weight + math.inf, math.inf, 1.0),
    ],
)
def test_a_loss_or_a_norm_alone_that_is_not_finite_moves_nothing_either(total, loss, norm):
    updates, algorithm = updates_of(kind=Shaping)
    update = updates.apply([Shaped(total)], training_step=0)

    assert (loss, norm, True) == (update.loss, update.grad_norm, update.is_skipped)
    assert 0.0 == algorithm.own[0].item()


def test_as_many_updates_may_be_skipped_as_the_limit_says():
    last = Update(math.nan, 2.0, 1e-3, 30, is_skipped=True, metrics={}, train_s=3.0)
    refuse_many_nonfinite(3, limit=3, last=last)
    with pytest.raises(TrainingError) as caught:
        refuse_many_nonfinite(4, limit=3, last=last)

    assert (
        "training.max_nonfinite_steps allows 3 non-finite updates, got 4; last loss nan, gradient "
        "norm 2.0; lower training.lr, the last good checkpoint is kept"
    ) == str(caught.value)


def test_a_dump_has_the_gradients_of_an_update_and_the_weights_after_it(tmp_path):
    updates, _ = updates_of(kind=Logging)
    window = [Logged(1.0, total=2.0, figure=8.0), Logged(3.0, total=-6.0, figure=4.0)]
    update = updates.apply(window, training_step=0, dump=tmp_path / "dump")
    figures = json.loads((tmp_path / "dump/dump.json").read_text("utf-8"))["figures"]

    assert {
        "gradient/algorithm.0": -1.0,
        "gradient/algorithm.1": -1.0,
        "weight/algorithm.0": 1.0,
        "weight/algorithm.1": 1.0,
    } == {name: tensor.item() for name, tensor in read_dump(tmp_path / "dump").items()}
    assert {"loss": -1.0, "grad_norm": update.grad_norm, "figure": 5.0} == figures


class MatrixAndVector(TwoWeights):
    """Of the loss ``first + second`` too, but one is a matrix; both are 1."""

    def __init__(self, options, *, system):
        super().__init__(options, system=system)
        self.own = [torch.nn.Parameter(torch.ones(shape)) for shape in ((1, 1), (1,))]

    def step(self, _batch):
        return self.own[0].sum() + self.own[1].sum(), {}


@each_row(
    ("optimizer", "matrix"),
    [
        # 1 - (gradient 1 + 0.5 of the weight), and 1 - 1.
        ({"name": "sgd", "options": {"weight_decay": 0.5}}, -0.5),
        ({"name": "sgd"}, 0.0),
        ({"name": "bad_plugins:BareOptimizer"}, 0.0),
    ],
)
def test_matrices_decay_as_the_optimisers_options_say(optimizer, matrix):
    updates, algorithm = updates_of(kind=MatrixAndVector, optimizer=optimizer)
    updates.apply([Batch()], training_step=0)

    assert [matrix, 0.0] == [weight.item() for weight in algorithm.own]


def test_what_an_optimiser_raises_in_its_step_is_reported_with_its_name():
    updates, _ = updates_of(optimizer={"name": "bad_plugins:StuckOptimizer"})
    said = "^optimizer 'bad_plugins:StuckOptimizer' must not fail in step, got RuntimeError"

    with pytest.raises(PluginError, match=said):
        updates.apply([Batch()], training_step=0)


def test_what_a_schedule_raises_in_its_step_is_reported_with_its_name():
    updates, _ = updates_of(schedule={"name": "bad_plugins:StuckSchedule"})
    said = "^schedule 'bad_plugins:StuckSchedule' must not fail in step, got RuntimeError"

    with pytest.raises(PluginError, match=said):
        updates.move_schedule()


def test_an_update_of_nothing_but_frozen_parts_changes_nothing():
    updates, algorithm = updates_of(parts={"all": Part(pattern="algorithm", active="never")})
    update = updates.apply([Batch()], training_step=0)

    assert (0.0, False) == (update.grad_norm, update.is_skipped)
    assert [0.0, 0.0] == [weight.item() for weight in algorithm.own]


def test_parts_may_learn_at_rates_of_their_own():
    updates, algorithm = updates_of(parts={"a": Part(pattern=r"algorithm\.0", lr_factor=0.25)})
    updates.apply([Batch()], training_step=0)

    assert [-0.25, -1.0] == [weight.item() for weight in algorithm.own]


def test_a_frozen_part_of_the_attacker_stays_as_it_was_and_the_rest_learns():
    trainer = trainer_of(
        configured(
            training_steps=1, evaluate="none", parts={"mlp": {"pattern": "mlp", "active": "never"}}
        )
    )
    model = trainer.sampler.system.attacker.model
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer.train()
    moved = {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}

    assert moved
    assert not any("mlp" in name for name in moved)
    assert any("attn" in name for name in moved)


@pytest.mark.real
def test_alternating_parts_resume_where_they_stopped(tmp_path):
    span = {"active": "periodic", "period": 2}
    config = configured(
        optimizer=choice("adamw"),
        parts={
            "mlp": {"pattern": "mlp", "start": 0, "stop": 1, **span},
            "rest": {"pattern": "^(?!.*mlp)", "start": 1, "stop": 2, "lr_factor": 0.5, **span},
        },
    )
    whole = trainer_of(config, tmp_path / "whole")
    whole.train()
    for report in trainer_of(config, tmp_path / "cut").steps():
        if report.training_step == 2:
            break
    resumed = trainer_of(config, tmp_path / "cut")
    assert resumed.resume()
    resumed.train()

    assert weights_of(whole) == weights_of(resumed)


@each_row("limit", [0.5, 2**0.5, 1.5, None])
def test_gradients_are_clipped_as_torch_clips_them(limit):
    updates, algorithm = updates_of()
    updates._config = updates._config.model_copy(update={"max_grad_norm": limit})
    update = updates.apply([Batch()], training_step=0)
    theirs = [torch.nn.Parameter(torch.zeros(())) for _ in range(2)]
    for weight in theirs:
        weight.grad = torch.ones(())
    norm = torch.nn.utils.clip_grad_norm_(theirs, limit or float("inf"))

    assert norm.item() == update.grad_norm
    assert [-weight.grad.item() for weight in theirs] == [w.item() for w in algorithm.own]


def test_an_update_that_was_cut_is_reported_as_skipped():
    update = Update(0.5, 2.0, 1e-3, 30, is_skipped=False, metrics={}, train_s=3.0, is_cut=True)
    said = Experience(4, (), (), {}, rollout_s=7.0, score_s=1.5)

    assert update.report(12, said, {}, is_first=False).is_skipped


def test_gradients_of_a_frozen_part_are_dropped_before_the_others_are_measured():
    frozen = Part(pattern=r"algorithm\.0", active="periodic", period=4, start=3, stop=4)
    updates, algorithm = updates_of(parts={"first": frozen})
    norms = []
    for step in (0, 3):
        for weight in algorithm.own:
            weight.grad = torch.ones_like(weight)
        norms.append(updates.prepare(step))

    assert pytest.approx([1.0, 2**0.5]) == norms
