import pytest
from each_row import each_row

from astra_core.config import AgentConfiguration, AgentTraining, Part, SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.settings.agents import check_agents

ROLES = ("opener", "presser")
OWN = {"presser": AgentConfiguration(model="own")}


@each_row(
    ("record", "line"),
    [
        ({"agents": {"presser": {}}}, "agents must be named in roles, got 'presser' besides []"),
        ({"roles": ["a b"]}, "system.roles.0"),
        (
            {"roles": ["a"], "agents": {"a": {"model": "own"}}},
            "agents.a plays the first turn and must have model 'shared'",
        ),
        (
            {"roles": ["a"], "agents": {"a": {"own_weights": "x"}}},
            "agents.a plays the first turn and must have model 'shared'",
        ),
        (
            {"roles": ROLES, "agents": {"presser": {"model": "own", "own_weights": "x"}}},
            "own_weights must be null when model is 'own'",
        ),
        (
            {"roles": ROLES, "agents": {"presser": {"own_weights": "("}}},
            "own_weights must be a regular expression",
        ),
        (
            {"roles": ROLES, "agents": {"presser": {"modl": "own"}}},
            "system.agents.presser.modl is not a known key; did you mean 'model'?",
        ),
    ],
)
def test_roles_that_cannot_be_played_are_one_line(record, line):
    record = {**record, "roles": list(record.get("roles", ()))}
    with pytest.raises(ConfigurationError) as caught:
        SystemConfiguration.read(record, where="system")

    assert line in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


def test_who_shares_everything():
    assert AgentConfiguration().shares_all
    assert not AgentConfiguration(model="own").shares_all
    assert not AgentConfiguration(own_weights="mlp").shares_all


@each_row(
    "own", [{"lr": 1e-3}, {"warmup_steps": 0}, {"parts": {}}, {"schedule": {"name": "annealing"}}]
)
def test_a_frozen_agent_sets_nothing(own):
    (name,) = own

    assert (name,) == AgentTraining.read(own, where="x").settings
    with pytest.raises(ConfigurationError, match=f"{name} must be null when trainable is false"):
        AgentTraining.read({**own, "trainable": False}, where="training.agents.presser")


def test_what_can_be_trained_passes():
    training = {"presser": AgentTraining(lr=1e-3), "opener": AgentTraining(trainable=False)}
    check_agents(ROLES, OWN, training, depth=2)
    check_agents((), {}, {}, depth=1, plays_roles=False, num_processes=2)


@each_row(
    ("training", "surroundings", "line"),
    [
        ({"closer": AgentTraining()}, {}, "must name agents of system.roles, got 'closer'"),
        (
            dict.fromkeys(ROLES, AgentTraining(trainable=False)),
            {},
            "must leave an agent that learns",
        ),
        ({}, {"depth": 1}, "system.roles must name at most as many turns"),
        ({}, {"plays_roles": False}, "rollouts.sampler must play the roles of system.roles"),
        ({}, {"num_processes": 2}, "machine.num_processes must be 1 for several agents, got 2"),
    ],
)
def test_what_cannot_be_trained_is_one_line(training, surroundings, line):
    with pytest.raises(ConfigurationError) as caught:
        check_agents(ROLES, OWN, training, **surroundings)

    assert line in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


def test_a_setting_for_an_agent_without_weights_of_its_own_is_refused():
    with pytest.raises(ConfigurationError, match=r"agents\.presser\.lr must be null for an agent"):
        check_agents(ROLES, {}, {"presser": AgentTraining(lr=1e-3)})
    # The first agent's are the attacker's.
    check_agents(ROLES, {}, {"opener": AgentTraining(lr=1e-3)})


def test_a_part_is_a_regular_expression():
    with pytest.raises(ConfigurationError, match="pattern must be a regular expression"):
        Part.read({"pattern": "("}, where="part")
