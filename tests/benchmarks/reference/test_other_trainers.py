import pytest
import torch
from each_row import each_row
from tiny_benchmark import TINY

from benchmarks.measures.update import BETA, learner
from benchmarks.reference.other_trainers import TRAINERS, gradient_norm
from benchmarks.shapes import language_model, rewarded_graphs, system

pytestmark = [
    pytest.mark.filterwarnings("ignore")  # TRL's import warns about other libraries
]


@pytest.fixture(scope="module")
def pairs():
    own = system(TINY)
    return learner(TINY, own, rewarded_graphs(TINY, own, 1)).pairs(1)


@pytest.mark.wide
@each_row("name", TRAINERS)
def test_another_trainer_moves_no_weight_and_repeats_its_loss(name, pairs):
    trainer = TRAINERS[name](TINY, beta=BETA, precision="fp32")
    first, norm = trainer.step(pairs), gradient_norm(trainer.model)

    assert first == pytest.approx(trainer.step(pairs), rel=1e-6)
    assert norm == pytest.approx(gradient_norm(trainer.model), rel=1e-5)
    assert norm > 0.0
    before = language_model(TINY).model.state_dict()
    after = trainer.model.state_dict()
    assert all(torch.allclose(before[key], after[key], atol=1e-9) for key in before)


@pytest.mark.wide
@each_row("name", TRAINERS)
def test_another_trainer_computes_in_bf16_when_asked(name, pairs):
    losses = [
        TRAINERS[name](TINY, beta=BETA, precision=precision).step(pairs)
        for precision in ("fp32", "bf16")
    ]

    assert losses[0] == pytest.approx(losses[1], rel=0.03)
    assert losses[0] != losses[1]
