import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from each_row import each_row
from tiny_training import Ready, choice, configured, sampler_of, trainer_of, weights_of

from astra_core.algorithm import Algorithm
from astra_core.algorithms.dpo import DPO
from astra_core.errors import CheckpointError, ConfigurationError, TrainingError
from astra_core.training.trainer import Trainer
from astra_parts.testing import tiny_prompts, tiny_system

CASES = json.loads(
    (Path(__file__).parents[2] / "vectors" / "astra_grad_accumulation.json").read_text(
        encoding="utf-8"
    )
)["cases"]


def outcome(folder=None, *, parts=None, **changes):
    """Everything of a run that a setting may change."""
    trainer = trainer_of(configured(**changes), folder, **(parts or {}))
    rows, weights = [], []
    for report in trainer.steps():
        rows.append(report.row())
        weights.append(weights_of(trainer))
    return {
        "rows": rows,
        "weights": weights,
        "exported": weights_of(trainer),
        "evaluated": [point.training_step for point in trainer.progress.evaluations],
        "kept": sorted(path.name for path in folder.iterdir()) if folder else [],
        "best": trainer.best.training_step,
        "stopped": trainer.progress.stopped_because,
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return outcome(tmp_path_factory.mktemp("run"))


@pytest.mark.real
def test_a_run_can_be_repeated_bit_for_bit(plain, tmp_path):
    assert plain == outcome(tmp_path)


@pytest.mark.real
@each_row(
    ("change", "differs"),
    [
        ({"algorithm": choice("sft")}, "weights"),
        ({"training_steps": 2}, "rows"),
        ({"num_episodes_per_experience": 3}, "weights"),
        ({"batch_size": 2}, "rows"),
        ({"batch_size": 2, "gradient_accumulation_steps": 3}, "rows"),
        ({"epochs_per_experience": 2}, "rows"),
        ({"max_update_share": 0.1}, "rows"),
        ({"lr": 0.02}, "weights"),
        ({"optimizer": choice("sgd")}, "weights"),
        ({"optimizer": choice("adamw", weight_decay=0.5)}, "weights"),
        ({"schedule": choice("transformers", kind="linear")}, "weights"),
        ({"warmup_steps": 2}, "weights"),
        ({"max_grad_norm": 1e-3, "optimizer": choice("sgd")}, "weights"),
        ({"max_grad_norm": None}, "weights"),
        ({"precision": "bf16"}, "weights"),
        ({"eval_every": 1}, "evaluated"),
        ({"metric": "eval/self_bleu"}, "best"),
        ({"early_stopping": {"max_optimizer_steps": 2}}, "stopped"),
        ({"checkpoint": {"save_every": 2, "keep": 5}}, "kept"),
        ({"checkpoint": {"save_every": 1, "keep": 1}}, "kept"),
    ],
)
def test_every_setting_changes_the_run(plain, tmp_path, change, differs):
    assert plain[differs] != outcome(tmp_path, **change)[differs]


def test_the_mode_says_which_end_of_the_metric_is_best(tmp_path):
    runs = [
        outcome(tmp_path / mode, metric="eval/kl_nats", mode=mode, eval_every=1, training_steps=1)
        for mode in ("max", "min")
    ]

    # The untrained attacker has no distance to the reference, and every update adds some.
    assert [True, False] == [run["best"] > 0 for run in runs]
    assert runs[0]["exported"] != runs[1]["exported"]


@pytest.mark.real
@each_row("options", [{"patience": 2}, {"max_kl_nats": 1e-6}, {"max_seconds": 1e-6}])
def test_every_rule_of_early_stopping_ends_a_run(tmp_path, options):
    trainer = trainer_of(
        configured(
            training_steps=9, eval_every=1, metric="eval/failed_rate", early_stopping=options
        ),
        tmp_path,
    )
    progress = trainer.train()

    assert progress.training_step < 9
    assert "all training steps" not in progress.stopped_because
    assert trainer.store.newest().step == progress.training_step


def test_min_delta_says_what_counts_as_better():
    runs = [
        outcome(training_steps=1, metric="eval/kl_nats", early_stopping={"min_delta": delta})
        for delta in (0.0, 1e6)
    ]

    assert [True, False] == [run["best"] > 0 for run in runs]


@pytest.mark.real
@each_row(("batch_size", "windows", "share"), [(1, 14, 1.0), (7, 2, 1.0), (2, 7, 0.2)])
def test_the_split_of_a_window_into_micro_batches_changes_nothing(batch_size, windows, share):
    """Windows of at most 14 pairs, whatever the size of a pass; the last may be smaller."""
    options = {"pairs": "all", "margin": 0.0}
    whole, split = (
        trainer_of(
            configured(
                batch_size=size,
                gradient_accumulation_steps=count,
                max_update_share=share,
                training_steps=2,
            ),
            is_evaluated=False,
            **options,
        )
        for size, count in ((14, 1), (batch_size, windows))
    )
    reports = [list(trainer.steps()) for trainer in (whole, split)]

    # More than one window per experience, and the last one of an experience is not full.
    assert len(reports[0]) > max(2, 2 * (1 / share - 2))
    assert any(report.metrics["rollout/num_steps"] % 14 for report in reports[0])
    assert len(reports[0]) == len(reports[1])
    for one, other in zip(*reports, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-4)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-4)
        assert one.num_tokens == other.num_tokens
        # Before the first update both log-ratios are 0, and rounding says which one is larger.
        own, twin = ({**r.metrics, "train/reward_accuracy": 0.0} for r in (one, other))
        assert own == pytest.approx(twin, rel=1e-4, abs=1e-5)
    for one, other in zip(
        whole.sampler.system.attacker.model.parameters(),
        split.sampler.system.attacker.model.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0.0, atol=1e-4)


@dataclass(frozen=True)
class Ones:
    """A batch whose gradient is 1 per step."""

    weight: float
    num_tokens: int = 1


class Counting(Algorithm):
    """Loss ``w`` per step, so that plain gradient descent at rate 1 counts updates."""

    def __init__(self, options, *, system):
        super().__init__(options, system=system)
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def flatten(self, graph):
        return [graph]

    def collate(self, steps):
        return Ones(float(len(steps)))

    def step(self, batch):
        return batch.weight * self.weight, {}

    def parameters(self):
        return (self.weight,)

    def state(self):
        return {"weight": self.weight.detach()}

    def load_state(self, state):
        with torch.no_grad():
            self.weight.copy_(state["weight"])


@each_row("case", CASES)
def test_a_short_last_window_is_applied_and_weighs_what_it_holds(case):
    config = configured(
        training_steps=case["training_steps"],
        num_episodes_per_experience=case["batches_per_experience"],
        gradient_accumulation_steps=case["gradient_accumulation_steps"],
        batch_size=1,
        lr=1.0,
        optimizer=choice("sgd"),
        max_grad_norm=None,
    )
    trainer = trainer_of(config, algorithm=Counting, is_evaluated=False, sampler=Ready)
    trainer.train()

    expected = case["recommended_final_weight"]
    flushed = "flush_after_every_experience (no gradient of an old policy carried over)"
    assert expected[flushed] == float(trainer.algorithm.weight.detach())


class Exploding(DPO):
    """Its loss is not finite at the second update."""

    num_steps = 0
    value = math.nan

    def step(self, batch):
        loss, metrics = super().step(batch)
        self.num_steps += 1
        return (loss * self.value if self.num_steps == 2 else loss), metrics


class Steep(Exploding):
    """Its loss is finite and its gradient is not."""

    def step(self, batch):
        loss, metrics = DPO.step(self, batch)
        self.num_steps += 1
        if self.num_steps == 2:
            bend = sum(p.sum() for p in self.system.attacker.model.parameters())
            loss = loss + (bend - bend.detach()).sqrt() * 0.0 + (bend - bend.detach()).sqrt()
        return loss, metrics


@each_row("kind", [Exploding, Steep])
def test_an_update_that_is_not_finite_is_skipped_and_counted(kind):
    trainer = trainer_of(
        configured(max_nonfinite_steps=1), algorithm=kind, is_evaluated=False, sampler=Ready
    )
    weights, reports = [], []
    for report in trainer.steps():
        weights.append(weights_of(trainer))
        reports.append(report)

    assert [False, True, False] == [report.is_skipped for report in reports[:3]]
    assert weights[0] == weights[1] != weights[2]
    assert trainer.progress.num_nonfinite == 1
    assert all(math.isfinite(x) for x in np.frombuffer(weights[-1], dtype=np.float32))


def test_too_many_updates_that_are_not_finite_end_the_run_and_keep_the_state(tmp_path):
    trainer = trainer_of(
        configured(max_nonfinite_steps=0, training_steps=9), tmp_path, algorithm=Exploding
    )

    with pytest.raises(TrainingError, match=r"training\.max_nonfinite_steps") as caught:
        trainer.train()
    assert "last loss nan" in str(caught.value)
    assert trainer.store.newest().step <= 2


def test_reports_say_what_happened():
    trainer = trainer_of(configured(schedule=choice("transformers", kind="linear"), batch_size=2))
    reports = list(trainer.steps())

    assert list(range(1, len(reports) + 1)) == [report.step for report in reports]
    assert [1, 2, 3] == sorted({report.training_step for report in reports})
    for report in reports:
        assert report.lr == pytest.approx(0.01 * (4 - report.training_step) / 3)
        assert report.grad_norm > 0.0
        assert report.num_tokens > 0
        assert report.row()["train/loss"] == report.loss
        assert all(math.isfinite(value) for value in report.row().values())
        assert {"rollout/reward", "rollout/kl_nats", "train/reward_accuracy"} <= report.row().keys()
        assert {"time/rollout_s", "time/train_s"} <= report.timings.keys()
        assert not set(report.timings) & set(report.row())
    firsts = [
        r
        for r, before in zip(reports, [None, *reports], strict=False)
        if before is None or before.training_step != r.training_step
    ]
    assert all(report.timings["time/rollout_s"] > 0.0 for report in firsts)
    assert trainer.progress.step == len(reports)
    assert reports[0].metrics["rollout/kl_nats"] == pytest.approx(0.0, abs=1e-4)


def test_a_listener_hears_of_every_update():
    told = []
    progress = trainer_of(configured(), is_evaluated=False, sampler=Ready).train(told.append)

    assert progress.step == len(told)


class Indifferent(DPO):
    """Finds nothing to learn."""

    def flatten_all(self, _):
        return []


def test_experience_that_teaches_nothing_makes_no_update_and_is_counted(tmp_path):
    trainer = trainer_of(
        configured(evaluate="none"), tmp_path, algorithm=Indifferent, sampler=Ready
    )
    before = weights_of(trainer)

    assert [] == list(trainer.steps())
    assert trainer.progress.num_empty == 3
    assert before == weights_of(trainer)
    assert trainer.progress.stopped_because == "all training steps are done"


def test_rollouts_that_exist_are_learned_from_first():
    system = tiny_system(1)
    (graph,) = sampler_of(system, seed=77).roll_out(tiny_prompts(1), iteration=0)
    collected = trainer_of(configured(), first_graphs=[graph] * 2, is_evaluated=False)
    plain = trainer_of(configured(), is_evaluated=False)
    first, other = (next(trainer.steps()).metrics for trainer in (collected, plain))

    assert first["rollout/num_nodes"] == 24.0
    assert first["rollout/reward"] != other["rollout/reward"]


@pytest.mark.real
def test_the_best_weights_are_in_the_attacker_at_the_end_and_score_what_they_scored(tmp_path):
    trainer = trainer_of(
        configured(metric="eval/kl_nats", mode="min", eval_every=1, lr=0.05), tmp_path
    )
    before = weights_of(trainer)
    trainer.train()

    assert trainer.best.training_step == 0
    assert before == weights_of(trainer)
    metrics = trainer.evaluator.evaluate(trainer.sampler.system).metrics()
    assert trainer.best.value == metrics["eval/kl_nats"]


def test_a_best_model_that_no_longer_scores_what_it_scored_is_reported(tmp_path):
    trainer = trainer_of(configured(training_steps=1), tmp_path)
    for report in trainer.steps():
        assert report.step
        break
    trainer.best.value = 2.0

    with pytest.raises(CheckpointError, match="when loaded again, got"):
        trainer.restore_best()


def test_without_an_evaluator_the_last_weights_stay(tmp_path):
    trainer = trainer_of(configured(training_steps=1), tmp_path, is_evaluated=False)
    trainer.train()

    assert trainer.progress.evaluations == []
    stored = trainer.store.newest().tensors
    model = trainer.sampler.system.attacker.model
    assert all(torch.equal(stored[f"model/{name}"], p) for name, p in model.named_parameters())


def test_a_metric_that_does_not_exist_is_refused_before_training():
    trainer = trainer_of(configured(metric="eval/no_such"))

    with pytest.raises(
        ConfigurationError, match=r"training\.metric must be a figure .* there are \['eval/"
    ):
        next(trainer.steps())
    assert trainer.progress.step == 0


def test_reference_and_target_do_not_move():
    trainer = trainer_of(configured(training_steps=1), is_evaluated=False)
    reference = trainer.sampler.system.reference.model
    before = [p.clone() for p in reference.parameters()]
    trainer.train()

    assert all(torch.equal(a, b) for a, b in zip(before, reference.parameters(), strict=True))


class Guided(Trainer):
    """Names its sampler as ASTRA-RL does."""

    def __init__(self, config, environment, algorithm):
        super().__init__(config, environment, algorithm)


def test_a_sampler_may_be_called_environment():
    plain = trainer_of(configured())
    parts = {"config": plain.config, "algorithm": plain.algorithm}

    assert Guided(environment=plain.sampler, **parts).sampler is plain.sampler
    assert Trainer(environment=plain.sampler, **parts).sampler is plain.sampler
