import pytest
import torch
from each_row import each_row
from played_service import PlayedService
from remote_training import remote

from astra_core.errors import AuthorizationError, ConfigurationError, RolloutError
from astra_core.training.trainer import Trainer
from astra_parts.services.pointer import parameters_digest, read_pointer
from astra_parts.services.remote_trainer import RemoteTrainer
from astra_parts.services.trainer_state import TrainerState
from astra_parts.testing import tiny_language_model


class Local(Trainer):
    """The local trainer, whose steps are to be the service's."""


@pytest.mark.real
def test_a_service_learns_what_the_local_trainer_learns(tmp_path):
    service = PlayedService()
    there = remote(tmp_path / "there", service, epochs_per_experience=2, evaluate="none")
    reports = list(there.steps())
    same = {"epochs_per_experience": 2, "evaluate": "none", "trainer": "trainer"}
    here = remote(tmp_path / "here", None, kind=Local, **same)
    # The same draws, so that both learn from the same probes.
    here.sampler.system.attacker.elsewhere = there.speaker
    there.speaker.path = None
    paths = iter([there._weights_after(1), there._weights_after(2)])
    for ours, theirs in zip(here.steps(), reports, strict=True):
        assert ours.lr == pytest.approx(theirs.lr)
        assert ours.loss == pytest.approx(theirs.loss, abs=1e-5)
        assert ours.num_tokens == theirs.num_tokens
        if ours.step % (len(reports) // 2) == 0:
            there.speaker.path = next(paths)

    trained = service.published[there._weights_after(2)]
    for name, weight in here.sampler.system.attacker.model.state_dict().items():
        assert torch.allclose(weight, trained[name], atol=1e-4), name


def dying_at(moment):
    """Ends the process at one of the moments at which a stage has ended."""
    count, move = iter(range(1, 100)), TrainerState.move_to

    def move_to(state, iteration, stage):
        move(state, iteration, stage)
        if next(count) == moment:
            raise KeyboardInterrupt

    return move_to


@pytest.mark.wide
def test_killed_after_every_stage_nothing_is_asked_twice(tmp_path, monkeypatch):
    service = PlayedService()
    remote(tmp_path / "whole", service).train()
    last = list(service.published)[-1]
    # After sampling, training, evaluating and saving.
    for moment in range(2, 6):
        again, folder = PlayedService(), tmp_path / str(moment)
        first = remote(folder, again)
        with monkeypatch.context() as patch:
            patch.setattr(TrainerState, "move_to", dying_at(moment))
            with pytest.raises(KeyboardInterrupt):
                first.train()
        second = remote(folder, again)
        second.resume()
        second.train()

        for name in ("update", "save", "publish", "draw", "score"):
            assert service.asked[name] == again.asked[name], (moment, name)
        assert list(service.published) == list(again.published)
        for name, weight in service.published[last].items():
            assert torch.equal(weight, again.published[last][name])


@pytest.mark.real
@pytest.mark.parametrize("moment", [pytest.param(5, marks=pytest.mark.wide), 8])
def test_weights_that_the_service_has_unloaded_are_published_again(tmp_path, monkeypatch, moment):
    # Of a run that was killed for long: after its first iteration, and after its last update.
    service, again = PlayedService(), PlayedService()
    remote(tmp_path / "whole", service).train()
    first = remote(tmp_path / "killed", again)
    with monkeypatch.context() as patch:
        patch.setattr(TrainerState, "move_to", dying_at(moment))
        with pytest.raises(KeyboardInterrupt):
            first.train()
    again.unloaded = set(again.published) - {None}
    second = remote(tmp_path / "killed", again)
    second.resume()
    second.train()

    for name in ("update", "save", "draw", "score"):
        assert service.asked[name] == again.asked[name], name
    assert again.asked["publish"] == service.asked["publish"] + 1
    last = list(service.published)[-1]
    for name, weight in service.published[last].items():
        assert torch.equal(weight, again.published[last][name])


@pytest.mark.real
def test_killed_within_an_update_it_begins_at_the_state_before(tmp_path):
    service, again = PlayedService(), PlayedService()
    remote(tmp_path / "whole", service).train()
    first = remote(tmp_path / "killed", again)
    save = again.save

    def dying(name):
        if again.asked["save"] == 1:
            raise KeyboardInterrupt
        return save(name)

    again.save = dying
    with pytest.raises(KeyboardInterrupt):
        first.train()
    again.save = save
    second = remote(tmp_path / "killed", again)
    second.resume()
    second.train()
    last = list(service.published)[-1]

    assert 1 == again.asked["go_on_from"]
    for name, weight in service.published[last].items():
        assert torch.equal(weight, again.published[last][name])


@each_row(
    ("changes", "told"),
    [
        ({"max_grad_norm": 1.0}, "training.max_grad_norm must be null"),
        ({"optimizer": {"name": "sgd"}}, "training.optimizer.name must be adamw"),
        ({"lora": {}}, "training.lora must be null"),
        ({"precision": "bf16"}, "training.precision must be fp32"),
        ({"kl": {"max_per_experience_nats": 1.0}}, "training.kl.max_per_experience_nats"),
        ({"algorithm": {"name": "dpo"}}, "training.algorithm must be grpo, reinforce"),
    ],
)
def test_what_the_service_would_drop_is_refused(changes, told, tmp_path):
    with pytest.raises(ConfigurationError, match=told):
        remote(tmp_path, PlayedService(), **changes)


def test_a_host_that_is_not_authorised_is_never_asked(tmp_path):
    options = {"address": "https://elsewhere.example"}

    with pytest.raises(AuthorizationError, match="trainer 'remote': authorization must name"):
        remote(tmp_path, None, kind=RemoteTrainer, options=options)


@pytest.mark.real
@each_row("on_error", ["fail_fast", "retry", "min_group"])
def test_a_draw_that_fails(on_error, tmp_path):
    # Draws 9 to 11 are tried in the first experience; the evaluation before it is whole.
    service = PlayedService(fails=[9] if on_error != "min_group" else range(9, 14))
    trainer = remote(
        tmp_path, service, options={"on_error": on_error, "retries": 1}, evaluate="none"
    )
    if on_error == "fail_fast":
        with pytest.raises(RolloutError, match=r"draws after a context must succeed, got .*busy"):
            trainer.train()
    elif on_error == "retry":
        assert 2 == trainer.train().training_step
    else:
        trainer.options = trainer.options.model_copy(update={"min_group": 1})
        assert 2 == trainer.train().training_step


@pytest.mark.real
@each_row("keep", ["last", "best"])
def test_what_stays_at_the_service_is_exported_as_a_pointer_to_it(tmp_path, keep):
    service = PlayedService()
    trainer = remote(tmp_path / "run", service, keep=keep)
    trainer.train()
    trainer.sampler.system.save(tmp_path / "attacker")
    pointer, kept = read_pointer(tmp_path / "attacker"), trainer._kept_step

    assert pointer.path == trainer._weights_after(kept)
    assert pointer.state == trainer._state_before(kept)
    assert "remote" == pointer.trainer
    assert pointer.base == parameters_digest(tiny_language_model(1))


@pytest.mark.real
def test_a_run_ends_when_it_has_spent_its_money(tmp_path):
    prices = {"prefill": 1.0, "sampled": 2.0, "trained": 3.0}
    service, options = PlayedService(), {"prices": prices, "max_cost": 1e-5}
    trainer = remote(tmp_path, service, options=options)
    reports = list(trainer.steps())

    assert 1 == trainer.progress.training_step
    assert "is spent at the service" in trainer.end()
    last = reports[-1].metrics
    tokens = [last[f"remote_{kind}_tokens"] for kind in prices]
    assert all(tokens)
    assert last["remote_cost"] == pytest.approx(
        sum(price * count for price, count in zip(prices.values(), tokens, strict=True)) / 1e6
    )


def test_a_limit_of_money_needs_prices(tmp_path):
    with pytest.raises(ConfigurationError, match="prices must be given where max_cost is"):
        remote(tmp_path, PlayedService(), options={"max_cost": 1.0})


@pytest.mark.real
def test_a_run_ends_when_it_has_sent_its_tokens(tmp_path):
    trainer = remote(tmp_path, PlayedService(), options={"max_tokens": 1})

    assert "of 1 tokens are trained" in trainer.train().stopped_because
    assert 1 == trainer.progress.training_step
