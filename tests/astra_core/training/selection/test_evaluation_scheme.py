import pytest
import torch
from each_row import each_row
from tiny_training import configured, trainer_of, weights_of

from astra_core.errors import CheckpointError, ConfigurationError
from astra_core.training.trainer import Trainer

METRIC = "eval/kl_nats"


def evaluated(**changes):
    """After how many training steps a run without a folder was evaluated."""
    trainer = trainer_of(configured(**changes))
    trainer.train()
    return [point.training_step for point in trainer.progress.evaluations]


@pytest.mark.real
@each_row(
    ("scheme", "steps"),
    [("every", [0, 2, 3]), ("first_and_last", [0, 3]), ("first", [0]), ("last", [3]), ("none", [])],
)
def test_each_scheme_evaluates_what_it_says(scheme, steps):
    assert steps == evaluated(evaluate=scheme)


@pytest.mark.real
def test_how_often_and_whether_at_first_matter_for_every_alone():
    often = {"eval_first": False, "eval_every": 1}

    assert [1, 2, 3] == evaluated(**often)
    assert [0, 3] == evaluated(evaluate="first_and_last", **often)


@pytest.mark.wide
def test_the_scheme_changes_nothing_that_is_learned():
    learned = set()
    for scheme in ("every", "first_and_last", "first", "last", "none"):
        trainer = trainer_of(configured(evaluate=scheme))
        trainer.train()
        learned.add(weights_of(trainer))

    assert 1 == len(learned)


@pytest.mark.real
@each_row(
    ("scheme", "keep", "kept"),
    [
        # The untrained attacker is the nearest to the reference, and so the best by this mode.
        ("every", "best", 0),
        ("first_and_last", "best", 0),
        ("last", "best", -1),
        ("first", "best", -1),
        ("none", "best", -1),
        ("every", "last", -1),
        ("first_and_last", "last", -1),
    ],
)
def test_a_run_ends_with_the_attacker_that_is_kept(scheme, keep, kept, tmp_path):
    config = configured(evaluate=scheme, keep=keep, metric=METRIC, mode="min")
    trainer = trainer_of(config, tmp_path)
    weights = [weights_of(trainer)]
    weights += [weights_of(trainer) for _ in trainer.steps()]

    assert weights[0] != weights[-1]
    assert weights[kept] == weights_of(trainer)

    again = trainer_of(config, tmp_path)
    assert again.resume()
    again.train()

    assert weights[kept] == weights_of(again)


@pytest.mark.real
@each_row("changes", [{"keep": "last"}, {"evaluate": "none"}])
def test_a_budget_that_ends_a_run_keeps_what_was_learned_last(changes, tmp_path):
    budget = {"early_stopping": {"max_optimizer_steps": 4}, "epochs_per_experience": 3}
    config = configured(metric=METRIC, mode="min", **budget, **changes)
    trainer = trainer_of(config, tmp_path)
    weights = [weights_of(trainer) for _ in trainer.steps()]

    assert 4 == len(weights)
    assert trainer.progress.is_partial
    assert weights[-1] == weights_of(trainer)


def test_no_best_is_kept_where_a_trainer_of_ones_own_evaluates_nothing(tmp_path):
    class Silent(Trainer):
        def steps(self):
            experience = self.harness.experience(0)
            yield self.update(next(self.windows(experience)), experience)
            self.restore_best()

    plain = trainer_of(configured())
    trainer = Silent(plain.config, plain.sampler, plain.algorithm, evaluator=plain.evaluator)
    before = weights_of(trainer)
    trainer.train()

    assert [] == trainer.progress.evaluations
    assert before != weights_of(trainer)


@pytest.mark.real
def test_without_evaluation_no_patience_ends_the_run():
    changes = {"early_stopping": {"patience": 1}, "metric": "eval/failed_rate", "eval_every": 1}

    assert [0, 1] == evaluated(**changes)
    trainer = trainer_of(configured(evaluate="none", **changes))

    assert "all training steps are done" == trainer.train().stopped_because


@pytest.mark.real
def test_what_is_evaluated_and_kept_may_change_at_resume(tmp_path):
    changes = {"metric": METRIC, "mode": "min"}
    trainer = trainer_of(configured(**changes), tmp_path)
    last = [weights_of(trainer) for _ in trainer.steps()][-1]
    assert last != weights_of(trainer)

    again = trainer_of(configured(keep="last", evaluate="last", **changes), tmp_path)
    assert again.resume()
    again.train()

    assert last == weights_of(again)


def test_a_metric_that_is_not_evaluated_lists_those_that_are():
    reason = (
        r"training.metric must be a figure of the evaluation, got 'eval/x'; there are \['eval/k"
    )
    trainer = trainer_of(configured(metric="eval/x"))
    trainer.examine = lambda _: {"eval/kl_nats": 1.0}

    with pytest.raises(ConfigurationError, match=reason):
        trainer.evaluate()


@each_row(("scheme", "num_told"), [("every", 0), ("first_and_last", 1), ("none", 1)])
def test_patience_that_can_end_nothing_is_reported_in_one_line(scheme, num_told, logged):
    logged.clear()
    trainer_of(configured(evaluate=scheme, early_stopping={"patience": 2}))

    assert num_told == len(logged)
    assert all("patience of 2 ends nothing" in line for line in logged)


@pytest.fixture
def trainer(tmp_path):
    return trainer_of(configured(), tmp_path)


def offer(trainer, value, training_step):
    """Offers the attacker with this score; the names of the models that are then kept."""
    trainer._kept.offer({trainer.config.metric: value}, training_step, min_delta=0.1)
    return sorted(path.name for path in trainer.store.folder.glob("best_*"))


def disturb(trainer):
    with torch.no_grad():
        for weight in trainer.sampler.system.attacker.model.parameters():
            weight.add_(1.0)


def test_only_an_attacker_that_is_better_by_enough_is_written(trainer):
    assert ["best_000000"] == offer(trainer, 0.5, 0)
    assert ["best_000000"] == offer(trainer, 0.55, 1)
    assert "best_000002" in offer(trainer, 0.7, 2)
    assert ("best_000002", 0.7) == (trainer.best.model, trainer.best.value)


def test_the_best_weights_are_put_back_if_they_score_what_they_scored(trainer):
    offer(trainer, 0.5, 0)
    before = weights_of(trainer)
    disturb(trainer)
    trainer._kept.put_back(lambda: 0.5)

    assert before == weights_of(trainer)
    with pytest.raises(CheckpointError, match="when loaded again, got"):
        trainer._kept.put_back(lambda: 0.4)


def test_a_score_that_several_processes_shared_is_not_held_against_one_process(trainer):
    offer(trainer, 0.5, 0)
    before = weights_of(trainer)
    alone = trainer.best.record()
    trainer.best.num_processes = 2
    shared = trainer.best.record()
    disturb(trainer)
    trainer._kept.put_back(lambda: pytest.fail("it would be rounded differently"))

    assert before == weights_of(trainer)
    assert {**alone, "num_processes": 2} == shared
    for record in (alone, shared):
        trainer.best.load(record)
        assert record == trainer.best.record()


def test_where_nothing_was_kept_nothing_is_put_back(trainer):
    disturb(trainer)
    before = weights_of(trainer)
    trainer._kept.put_back(lambda: pytest.fail("nothing is there to be scored"))

    assert before == weights_of(trainer)
