import math

import pytest
import torch
from each_row import each_row
from tiny_training import choice, configured, trainer_of, weights_of

from astra_core.errors import TrainingError


def test_a_dry_run_tells_what_a_batch_costs(tmp_path):
    trial = trainer_of(configured(), tmp_path).dry_run()

    assert trial.num_steps > 0
    assert trial.num_tokens > 0
    assert math.isfinite(trial.loss)
    assert trial.grad_norm > 0.0
    assert trial.peak_bytes > 2**20


@pytest.mark.real
@each_row("algorithm", ["dpo", "ppo"])
def test_a_dry_run_changes_nothing(tmp_path, algorithm):
    config = configured(algorithm=choice(algorithm))
    plain = trainer_of(config, tmp_path / "plain")
    plain.train()
    tried = trainer_of(config, tmp_path / "tried")
    before = weights_of(tried)
    tried.dry_run()

    assert before == weights_of(tried)
    assert [] == list(tmp_path.glob("tried/*"))
    tried.train()
    assert weights_of(plain) == weights_of(tried)


def test_a_dry_run_finds_weights_that_are_not_finite():
    trainer = trainer_of(configured())
    with torch.no_grad():
        trainer.sampler.system.attacker.model.model.norm.weight.fill_(math.inf)

    with pytest.raises(TrainingError, match="must be finite"):
        trainer.dry_run()


def test_a_dry_run_finds_that_there_is_nothing_to_learn():
    trainer = trainer_of(configured(), margin=1e6)

    with pytest.raises(TrainingError, match="must offer something to learn"):
        trainer.dry_run()
