import pytest
import torch
from each_row import each_row
from played_service import PlayedService
from remote_training import remote

from astra_core.errors import ConfigurationError
from astra_core.rewards.adversarial import AdversarialReward

ALIKE = {"name": "grpo", "options": {"aggregation": "sequence_mean"}}
# The step is then not the sign of a gradient that is only rounding.
SMOOTH = {"name": "adam", "options": {"eps": 1e-2}}
WHOLE = {"batch_size": 64, "evaluate": "none", "algorithm": ALIKE, "optimizer": SMOOTH}
PARTS = {"stream_minibatches": 2}
# What a novelty bonus is compared with is the part.
PLAIN = AdversarialReward(AdversarialReward.Options(novelty_weight=0.0))


class Watched(PlayedService):
    """Notes in which order it was asked; ``ends_at`` is the pass before which the process ends."""

    def __init__(self, ends_at=None):
        super().__init__()
        self.order, self.ends_at = [], ends_at

    def draw(self, draws, path):
        self.order.append("draw")
        return super().draw(draws, path)

    def update(self, batches, loss, adam):
        def noted():
            for number, batch in enumerate(batches):
                if number == self.ends_at:
                    raise KeyboardInterrupt
                self.order.append("pass")
                yield batch

        return super().update(noted(), loss, adam)


def trained(folder, service, *, options=PARTS, **changes):
    """The weights that a run comes to, and its trainer."""
    trainer = remote(folder, service, options=options, reward=PLAIN, **{**WHOLE, **changes})
    trainer.resume()
    trainer.train()
    return service.published[trainer._weights_after(2)], trainer


def are_close(some, others, *, tolerance):
    return all(torch.allclose(some[name], others[name], atol=tolerance) for name in some)


@pytest.mark.real
def test_a_part_is_learned_from_before_the_next_one_is_sampled(tmp_path):
    service = Watched()
    trained(tmp_path, service)
    order = "".join(kind[0] for kind in service.order)

    assert 2 == service.asked["update"]
    # Two iterations, of two parts of two levels each.
    assert "ddpddp" * 2 == order


@pytest.mark.real
def test_parts_teach_what_the_whole_teaches_where_probes_weigh_alike(tmp_path):
    streamed, trainer = trained(tmp_path / "parts", PlayedService())
    whole, other = trained(tmp_path / "whole", PlayedService(), options={})

    assert are_close(streamed, whole, tolerance=1e-5)
    assert trainer.progress.step == other.progress.step == 2
    last, theirs = (each._reports[-1] for each in (trainer, other))
    assert last.num_tokens == theirs.num_tokens
    assert last.loss == pytest.approx(theirs.loss, abs=1e-5)


@pytest.mark.real
def test_in_passes_of_a_few_probes_nothing_changes(tmp_path):
    small, _ = trained(tmp_path / "small", PlayedService(), batch_size=5)
    large, _ = trained(tmp_path / "large", PlayedService())

    assert are_close(small, large, tolerance=1e-5)


@pytest.mark.real
def test_killed_between_parts_it_draws_nothing_again_and_learns_the_same(tmp_path):
    service = Watched()
    whole, _ = trained(tmp_path / "whole", service)
    again = Watched(ends_at=1)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "killed", again)
    again.ends_at = None
    killed, _ = trained(tmp_path / "killed", again)

    assert service.asked["draw"] == again.asked["draw"]
    assert are_close(whole, killed, tolerance=0.0)


@pytest.mark.real
def test_an_experience_that_teaches_nothing_costs_no_update(tmp_path):
    service = PlayedService()
    flat = {"name": "grpo", "options": {"min_spread": 1e9}}
    trainer = remote(tmp_path, service, options=PARTS, **{**WHOLE, "algorithm": flat})

    assert [] == list(trainer.steps())
    assert 2 == trainer.progress.training_step
    assert 0 == service.asked["save"]


@each_row(
    ("changes", "told"),
    [
        ({"epochs_per_experience": 2}, "training.epochs_per_experience must be 1"),
        ({"gradient_accumulation_steps": 2}, "training.gradient_accumulation_steps must be 1"),
        ({"num_episodes_per_experience": 3}, "must divide num_episodes_per_experience, 3, got 2"),
    ],
)
def test_what_has_no_meaning_in_parts_is_refused(changes, told, tmp_path):
    with pytest.raises(ConfigurationError, match=told):
        trained(tmp_path, PlayedService(), **changes)
