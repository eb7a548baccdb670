import pytest
import torch
from tiny_training import configured, trainer_of, weights_of

from astra_core.errors import CheckpointError


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
