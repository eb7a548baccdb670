import pytest
import torch
from tiny_agents import agents_config, agents_trainer, changed, weights
from tiny_architectures import tiny_speaker

from astra_core.errors import ConfigurationError
from astra_parts.agents.leader_follower import LeaderFollower

OWN = {"presser": {"model": "own"}}
AHEAD = {"options": {"lookahead": 0.1}}
PPO = {"name": "ppo", "options": {"kl": "none"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def trainer_of(folder, *, team=OWN, store=None, options=None, **changes):
    return agents_trainer(
        folder,
        agents_config(**team),
        algorithm_choice=PPO,
        kind=LeaderFollower,
        store=store,
        trainer={"name": "leader_follower", "options": options or {}},
        **changes,
    )


def moved(trainer, experience):
    """The agents that each update moves."""
    models = {agent.name: agent.model for agent in trainer.sampler.system.agents}
    for window in trainer.windows(experience):
        before = {name: weights(model) for name, model in models.items()}
        trainer.updates.apply(window, training_step=0)
        yield {name for name, model in models.items() if changed(before[name], model)}


@pytest.mark.real
def test_followers_are_updated_as_often_as_asked_for_before_their_leader(folder):
    one = {"training_steps": 1, "gradient_accumulation_steps": 9}
    for leader, other in (("opener", "presser"), ("presser", "opener")):
        options = {"leader": leader, "follower_updates": 2}
        trainer = trainer_of(folder, options=options, **one)
        found = list(moved(trainer, trainer.harness.experience(0)))
        assert [{other}, {other}, {leader}] == found


def gradient(folder, lookahead, *, batch_size=64):
    options = {} if lookahead is None else {"lookahead": lookahead}
    trainer = trainer_of(folder, options=options, max_grad_norm=None)
    config = trainer.config.model_copy(
        update={"batch_size": batch_size, "gradient_accumulation_steps": 99}
    )
    trainer.config = config
    *_, window = trainer.windows(trainer.harness.experience(0))
    trainer.updates.gradients(window, training_step=0)
    return {
        name: weight.grad.clone()
        for name, weight in trainer.updates.weights().items()
        if weight.grad is not None
    }


def test_foreseeing_changes_the_leaders_gradient_alone_and_not_by_micro_batches(folder):
    plain, near, far = (gradient(folder, own) for own in (None, 1e-7, 0.5))
    assert not any(name.startswith("presser/") for name in plain)
    gap = {name: float((far[name] - own).abs().max()) for name, own in plain.items()}
    assert max(gap.values()) > 1e-6
    # The critic of the leader is its own affair.
    assert {0.0} == {own for name, own in gap.items() if name.startswith("algorithm.")}
    for name, own in plain.items():
        torch.testing.assert_close(own, near[name], rtol=1e-3, atol=1e-4)
    for name, own in gradient(folder, 0.5, batch_size=1).items():
        torch.testing.assert_close(own, far[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch_size", [1, 99])
def test_a_trial_of_one_batch_needs_no_experience_to_foresee(folder, batch_size):
    trainer = trainer_of(folder, **AHEAD)
    other = trainer_of(folder)

    assert trainer.dry_run(batch_size=batch_size).loss == other.dry_run(batch_size=batch_size).loss


def test_a_model_that_reads_rows_alone_cannot_be_foreseen(tmp_path):
    tiny_speaker("mamba").save(tmp_path / "tiny")

    assert trainer_of(tmp_path).updates.shape is None
    with pytest.raises(ConfigurationError, match="reads rows one by one, got that of 'opener'"):
        trainer_of(tmp_path, **AHEAD)


@pytest.mark.parametrize(
    ("team", "changes", "says"),
    [
        ({}, {}, "got 'presser' that shares; set system.agents.presser.model to own"),
        (OWN, {"options": {"leader": "closer"}}, "got 'closer'; correct it or leave it out"),
        (OWN, {"agents": {"presser": {"trainable": False}}}, "got ['opener']; name"),
        (OWN, {"options": {"lookahead": 0.0}}, "lookahead: input should be greater than 0"),
        (OWN, AHEAD | {"parts": {"all": {"pattern": "."}}}, "must be null beside training.parts"),
        (OWN, AHEAD | {"staleness": {"correction": "token"}}, "beside training.staleness.correct"),
    ],
)
def test_what_cannot_lead_or_follow_is_one_line(folder, team, changes, says):
    with pytest.raises(ConfigurationError) as caught:
        trainer_of(folder, team=team, **changes)

    assert says in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.real
def test_two_agents_train_end_to_end_and_resume_bit_for_bit(folder, tmp_path):
    options = {"follower_updates": 2, "lookahead": 0.1}

    def trainer(name):
        return trainer_of(folder, store=tmp_path / name, options=options, batch_size=64)

    def told(own):
        return [weight.detach().clone() for weight in own.updates.weights().values()]

    whole = trainer("whole")
    before = told(whole)
    reports = []
    whole.train(reports.append)
    for report in trainer("cut").steps():
        if report.training_step == 2:
            break
    resumed = trainer("cut")
    assert resumed.resume()
    resumed.train()

    assert 3 == resumed.progress.training_step
    assert all(map(torch.equal, told(whole), told(resumed)))
    assert not any(map(torch.equal, before, told(whole)))
    led = [
        {name for name in ("opener", "presser") if f"train/{name}/loss" in own.metrics}
        for own in reports
    ]
    assert led == [{"presser"}, {"presser"}, {"opener"}] * 3
    assert all("train/opener/value_loss" in own.metrics for own in reports[2::3])
