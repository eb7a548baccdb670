"""Who learns which weights, at which rate."""

import pytest
from each_row import each_row
from tiny_agents import agents_config, agents_trainer, changed, weights
from tiny_training import choice, configured

from astra_core.errors import ConfigurationError
from astra_core.training.learner import configs_of, has_same_rates

OWN = {"presser": {"model": "own"}}
PART = {"presser": {"own_weights": "mlp"}}
LORA = {"rank": 2, "alpha": 4.0, "target_modules": ["q_proj"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def trained(folder, agents, training=None, **changes):
    """The trainer after its run, and what each agent's weights were before."""
    changes = {"training_steps": 1, **changes}
    trainer = agents_trainer(folder, agents_config(**agents), agents=training or {}, **changes)
    before = [weights(agent.model) for agent in trainer.sampler.system.agents]
    rows = [report.row() for report in trainer.steps()]
    return trainer, before, rows


def moved(trainer, before):
    """The names of the weights that changed, by agent."""
    agents = trainer.sampler.system.agents
    return [changed(old, agent.model) for old, agent in zip(before, agents, strict=True)]


def test_agents_that_share_everything_have_one_learner(folder):
    trainer, before, _ = trained(folder, {})

    assert ["opener"] == [learner.name for learner in trainer.updates.learners]
    opener, presser = moved(trainer, before)
    assert opener == presser == set(before[0])


@pytest.mark.real
def test_a_shared_model_with_parts_learns_each_at_its_own_rate(folder):
    found = {}
    for lr in (0.01, 0.02):
        trainer, before, rows = trained(folder, PART, {"presser": {"lr": lr}}, batch_size=64)
        opener, presser = (agent.model for agent in trainer.sampler.system.agents)
        assert (0.01, lr) == (rows[0]["train/opener/lr"], rows[0]["train/presser/lr"])
        found[lr] = (weights(opener), weights(presser))
        shared = {name for name in before[0] if "mlp" not in name}
        assert shared == set(before[0]) - changed(weights(opener), presser)
        assert [set(before[0])] * 2 == moved(trainer, before)
    # The first update starts from the same gradients: Adam's first step is the rate, so the
    # weights of the presser alone are the only ones that end elsewhere.
    first, second = found[0.01], found[0.02]
    names = first[0].keys()
    assert all((first[0][name] == second[0][name]).all() for name in names)
    ends = {name for name in names if not (first[1][name] == second[1][name]).all()}
    assert ends == {name for name in names if "mlp" in name}


@each_row(("frozen", "learns"), [("opener", "presser"), ("presser", "opener")])
def test_a_frozen_agent_keeps_its_weights_and_has_no_optimizer_state(folder, frozen, learns):
    trainer, before, rows = trained(folder, OWN, {frozen: {"trainable": False}})
    by_name = dict(zip(("opener", "presser"), moved(trainer, before), strict=True))

    assert set() == by_name[frozen]
    assert set(before[0]) == by_name[learns]
    (learner,) = trainer.updates.learners
    assert learns == learner.name
    assert len(before[0]) == len(learner.optimizer.state)
    assert not any(name.startswith(f"train/{frozen}/") for name in rows[0])
    assert f"rollout/{frozen}/reward" in rows[0]


@pytest.mark.real
def test_a_frozen_agent_teaches_nothing_to_whom_it_shares_with(folder):
    _, _, both = trained(folder, {})
    trainer, before, alone = trained(folder, {}, {"opener": {"trainable": False}})

    assert set(before[0]) == moved(trainer, before)[0]
    assert 1.0 == alone[0]["train/presser/share"] > both[0]["train/presser/share"]


@pytest.mark.real
def test_each_agent_has_its_own_schedule_and_parts(folder):
    training = {
        "presser": {
            "schedule": {"name": "annealing", "options": {"rate": 0.5}},
            "warmup_steps": 0,
            "parts": {"mlp": {"pattern": "mlp", "lr_factor": 0.0}},
        }
    }
    trainer, before, rows = trained(folder, OWN, training, training_steps=2)
    opener, presser = moved(trainer, before)

    assert [0.01, 0.01] == [rows[0][f"train/{name}/lr"] for name in ("opener", "presser")]
    assert [0.01, 0.005] == [rows[-1][f"train/{name}/lr"] for name in ("opener", "presser")]
    assert set(before[0]) == opener
    assert presser == {name for name in before[1] if "mlp" not in name}


@pytest.mark.real
def test_agents_take_turns_in_learning_by_parts(folder):
    every = {"pattern": ".", "active": "periodic", "period": 2}
    training = {
        "opener": {"parts": {"all": {**every, "start": 0, "stop": 1}}},
        "presser": {"parts": {"all": {**every, "start": 1, "stop": 2}}},
    }
    trainer, before, _ = trained(folder, OWN, training)

    assert [set(before[0]), set()] == moved(trainer, before)


def test_each_gradient_is_cut_to_the_norm_by_itself(folder):
    limit = 1e-3
    norms = {}
    for clipped in (None, limit):
        sgd = {"name": "sgd", "options": {"momentum": 0.0}}
        trainer, before, rows = trained(
            folder, OWN, max_grad_norm=clipped, optimizer=sgd, lr=1.0, batch_size=64
        )
        agents = trainer.sampler.system.agents
        after = [weights(agent.model) for agent in agents]
        norms[clipped] = [
            sum(float((new[name] - weight).square().sum()) for name, weight in old.items()) ** 0.5
            for old, new in zip(before, after, strict=True)
        ]
        own = [rows[0][f"train/{agent.name}/grad_norm"] for agent in agents]
        assert pytest.approx(sum(norm**2 for norm in own) ** 0.5) == rows[0]["train/grad_norm"]
        assert min(own) > limit

    assert pytest.approx([limit, limit], rel=0.05) == norms[limit]
    assert norms[None][0] != pytest.approx(norms[None][1], rel=0.05)


@pytest.mark.real
def test_adapters_may_be_all_that_an_agent_has_alone(folder):
    agents = {"presser": {"own_weights": "lora_"}}
    trainer, before, _ = trained(folder, agents, lora=LORA)
    opener, presser = (agent.model.model for agent in trainer.sampler.system.agents)
    mine, theirs = dict(presser.named_parameters()), dict(opener.named_parameters())

    assert {name for name in mine if "lora_" in name} == {
        name for name in mine if mine[name] is not theirs[name]
    }
    assert all("lora_" in name for own in moved(trainer, before) for name in own)
    assert ["opener", "presser"] == [learner.name for learner in trainer.updates.learners]


def test_settings_without_weights_to_use_them_are_refused(folder):
    # Adapters take the place of all other weights, so nothing is left of the presser's own.
    agents = {"presser": {"own_weights": "mlp"}}
    with pytest.raises(ConfigurationError, match=r"presser\.lr must be null for an agent without"):
        trained(folder, agents, {"presser": {"lr": 0.1}}, lora=LORA)


@pytest.mark.real
def test_a_schedule_of_one_agent_may_follow_an_evaluation(folder):
    plateau = {"name": "plateau", "options": {"patience": 0, "factor": 0.5, "threshold": 9.0}}
    training = {"presser": {"schedule": plateau}}
    settings = {"agents": training, "training_steps": 3, "eval_every": 1}
    trainer = agents_trainer(folder, agents_config(**OWN), is_evaluated=True, **settings)
    rows = [report.row() for report in trainer.steps()]

    assert {0.01} == {row["train/opener/lr"] for row in rows}
    assert rows[-1]["train/presser/lr"] < rows[0]["train/presser/lr"]
    with pytest.raises(ConfigurationError, match=r"training\.evaluate must be 'every'"):
        agents_trainer(folder, agents_config(**OWN), **settings)


def test_the_schedules_of_all_agents_are_reported():
    config = configured(agents={"presser": {"lr": 0.5}, "opener": {"trainable": False}})

    assert [0.01, 0.5] == [own.lr for own in configs_of(config)]


def same(kind, *, steps=3, done=3, **changes):
    schedule = choice("transformers", kind=kind)
    config = configured(training_steps=9, schedule=schedule, **changes)
    return has_same_rates(config, training_steps=steps, num_done=done)


@each_row("kind", ["constant", "constant_with_warmup", "inverse_sqrt"])
@each_row("warmup_steps", [1, 2])
def test_a_schedule_of_the_step_alone_has_the_rates_it_had(kind, warmup_steps):
    assert same(kind, warmup_steps=warmup_steps)


@each_row("kind", ["cosine", "linear", "polynomial"])
def test_a_schedule_that_looks_ahead_has_others(kind):
    assert not same(kind)
    assert same(kind, steps=9)


def test_annealing_does_not_look_ahead():
    config = configured(training_steps=9, schedule=choice("annealing", rate=0.2))

    assert has_same_rates(config, training_steps=3, num_done=3)


def test_rates_that_differ_only_later_do_not_count():
    # While it warms up, the rates are those of any length.
    assert same("linear", warmup_steps=6, done=4)
    assert not same("linear", warmup_steps=2, done=4)
    # The rate of the next step is in force already.
    assert not same("linear", warmup_steps=1, done=1)


def test_a_schedule_that_follows_evaluations_is_not_prolonged_unseen():
    plateau = {"name": "plateau", "options": {"metric": "eval/attack_success_rate"}}
    config = configured(training_steps=6, schedule=plateau)

    assert not has_same_rates(config, training_steps=3, num_done=3)
    assert has_same_rates(config, training_steps=6, num_done=3)


def test_the_schedule_of_any_agent_counts():
    ahead = {"presser": {"schedule": choice("transformers", kind="cosine")}}
    config = configured(training_steps=9, agents=ahead)

    assert not has_same_rates(config, training_steps=3, num_done=3)
    assert has_same_rates(configured(training_steps=9), training_steps=3, num_done=3)
