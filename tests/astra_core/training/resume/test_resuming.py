import pytest
from tiny_training import configured, trainer_of

from astra_core.training.resume.resuming import resume


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The checkpoints of a run of two steps."""
    folder = tmp_path_factory.mktemp("ended")
    trainer_of(configured(training_steps=2), folder).train()
    return folder


def resumed(folder, **changes):
    trainer = trainer_of(configured(training_steps=2, **changes), folder)
    return trainer, resume(trainer, trainer._state)


def test_where_there_is_no_checkpoint_nothing_is_resumed(tmp_path):
    trainer, found = resumed(tmp_path)

    assert not found
    assert 0 == trainer.progress.training_step


def test_a_run_that_has_ended_stays_ended(ended):
    trainer, found = resumed(ended)

    assert found
    assert (2, "all training steps are done") == (
        trainer.progress.training_step,
        trainer.progress.stopped_because,
    )
    assert trainer.best.models


def test_a_run_in_another_folder_takes_the_models_it_refers_to_along(ended, tmp_path):
    trainer, found = resumed(tmp_path, checkpoint={"resume": str(ended), "save_every": 1})

    assert found
    assert 2 == trainer.progress.training_step
    assert trainer.best.models <= {path.name for path in tmp_path.iterdir()}


def test_never_forgets_what_there_was(ended, tmp_path):
    first = trainer_of(configured(training_steps=1), tmp_path)
    first.train()
    trainer, found = resumed(tmp_path, checkpoint={"resume": "never"})

    assert not found
    assert trainer.store.newest() is None
