import json

import pytest
import torch
from tiny_agents import agents_config, agents_system, changed, weights
from tiny_chats import PROMPTS, chat_config, chat_model, chat_system

from astra_core.agents import Agent, as_exported, own_folder, separate_models, turn_figures
from astra_core.config import EvaluationConfiguration
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.evaluator import Evaluator
from astra_core.models.folders import AGENTS, FORMAT
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from astra_parts.testing import (
    tiny_graph,
    tiny_language_model,
    tiny_node,
    tiny_prompts,
    tiny_system,
)

OWN = {"presser": {"model": "own"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


def grown(system, *, depth=3, iteration=0):
    reward = AdversarialReward(AdversarialReward.Options())
    options = TreeSampler.Options(tree_width=2, tree_depth=depth, num_responses=1)
    prompts = tiny_prompts(2)
    sampler = TreeSampler(options, system=system, prompts=prompts, reward=reward, seed=3)
    return sampler.roll_out(prompts, iteration=iteration)


def moved(model):
    """The model with other weights, so that it says something else."""
    with torch.no_grad():
        for weight in model.model.parameters():
            weight.add_(0.3 * torch.sin(torch.arange(weight.numel())).view_as(weight))


def said(graphs, turn):
    return [
        (node.probe_ids, node.probe_logprobs)
        for graph in graphs
        for node in graph.nodes()
        if len(node.path) == turn + 1
    ]


def test_without_roles_one_attacker_plays_every_turn():
    system = tiny_system(1)
    player = system.player(7)

    assert ("attacker", system.attacker, system.reference) == (
        player.name,
        player.model,
        player.reference,
    )


def test_the_last_role_plays_all_further_turns(folder):
    system = agents_system(folder, agents_config(roles=["a", "b", "a", "c"]))

    assert ["a", "b", "a", "c", "c", "c"] == [system.player(turn).name for turn in range(6)]
    assert ["a", "b", "c"] == [agent.name for agent in system.agents]


def test_each_turn_of_a_tree_is_played_by_its_agent(folder):
    before = grown(agents_system(folder, agents_config(**OWN)))
    system = agents_system(folder, agents_config(**OWN))
    moved(system.agents[1].model)
    graphs = grown(system)

    assert said(before, 0) == said(graphs, 0)
    assert said(before, 1) != said(graphs, 1)
    # The log-probabilities are those of the agent that played, read again.
    for turn, agent in ((0, system.agents[0]), (1, system.agents[1]), (2, system.agents[1])):
        nodes = [node for node in graphs[0].nodes() if len(node.path) == turn + 1]
        read = agent.model.continuation_logprobs(
            [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
        )
        for node, logprobs in zip(nodes, read, strict=True):
            assert pytest.approx(node.probe_logprobs, abs=1e-4) == logprobs


@pytest.mark.real
def test_agents_that_share_everything_say_what_one_attacker_says(folder):
    alone = agents_system(folder, agents_config(roles=[]))
    shared = agents_system(folder, agents_config())

    assert grown(alone) == grown(shared)
    assert alone.digest() == shared.digest()
    assert alone.training_digest() != shared.training_digest()


def test_an_instruction_opens_every_context_of_its_agent_alone(folder):
    config = agents_config(presser={"instruction": "you are bad"})
    system = agents_system(folder, config)
    told = system.agents[1].instruction_ids
    graphs = grown(system)
    plain = grown(agents_system(folder, agents_config()))

    assert system.attacker.closed_ids(system.attacker.encode("you are bad")) == told
    for graph in graphs:
        for node in graph.nodes():
            assert (len(node.path) > 1) == (node.context_ids[: len(told)] == told)
    assert said(graphs, 0) == said(plain, 0)
    assert said(graphs, 1) != said(plain, 1)
    # The reference reads the instruction too.
    nodes = [node for node in graphs[0].nodes() if len(node.path) == 2]
    read = system.reference.continuation_logprobs(
        [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
    )
    for node, logprobs in zip(nodes, read, strict=True):
        assert pytest.approx(node.reference_logprobs, abs=1e-4) == logprobs


def test_a_long_conversation_is_cut_behind_the_instruction():
    model = tiny_language_model()
    told, plain = Agent("a", model, model, (7, 8)), Agent("b", model, model)
    text = "you are bad worse good kind"
    conversation = Conversation(Prompt.of(text))
    ids = model.closed_ids(model.encode(text))

    assert ((7, 8, *ids[-2:]), 5) == _read(told, conversation, 4)
    assert ((7, 8, *ids), 0) == _read(told, conversation, 9)
    assert (ids[-4:], 3) == _read(plain, conversation, 4)
    assert (ids, 0) == _read(plain, conversation, 9)


def _read(agent, conversation, limit):
    (context,) = agent.contexts([conversation], limit)
    return context.token_ids, context.truncated_tokens


def test_an_instruction_that_fills_the_context_is_refused(folder):
    config = agents_config(presser={"instruction": "you " * 70})

    with pytest.raises(ConfigurationError, match=r"presser\.instruction must be shorter than 64"):
        agents_system(folder, config)


def test_own_weights_start_as_the_first_agents_and_are_apart(folder):
    system = agents_system(folder, agents_config(**OWN))
    opener, presser = (agent.model for agent in system.agents)
    before = weights(presser)

    assert opener is system.attacker
    assert set() == changed(weights(opener), presser)
    moved(opener)
    assert set() == changed(before, presser)
    assert {"": opener, "presser": presser} == separate_models(system.agents)


@pytest.mark.real
def test_what_is_saved_plays_as_it_was_trained(folder, tmp_path):
    config = agents_config(presser={"model": "own", "instruction": "so bad"})
    system = agents_system(folder, config)
    moved(system.agents[1].model)
    system.save(tmp_path / "out")
    # Whoever loads it need not know the roles.
    found = as_exported(agents_config(roles=[]), tmp_path / "out")
    again = agents_system(folder, found, attacker=tmp_path / "out", is_trained=False)

    assert (config.roles, config.agents) == (found.roles, found.agents)
    assert tmp_path / "out/agents/presser" == own_folder(tmp_path / "out", "presser")
    assert grown(system) == grown(again)


def test_an_attacker_that_was_exported_alone_plays_alone(tmp_path):
    tiny_system(1).save(tmp_path)

    assert () == as_exported(agents_config(**OWN), tmp_path).roles
    assert not (tmp_path / AGENTS).exists()


def test_a_damaged_note_of_the_roles_is_one_line(tmp_path):
    (tmp_path / AGENTS).write_text("{", "utf-8")
    with pytest.raises(ConfigurationError, match=r"agents\.json must hold JSON"):
        as_exported(agents_config(), tmp_path)

    (tmp_path / AGENTS).write_text(json.dumps({"roles": []}), "utf-8")
    with pytest.raises(ConfigurationError, match=r"agents must be given"):
        as_exported(agents_config(), tmp_path)


def test_an_agent_of_another_tokenizer_is_refused(folder, tmp_path):
    base = tmp_path / "one"
    tiny_language_model(1).save(base)
    tiny_language_model(1, vocabulary=None).save(base / "agents" / "presser")
    with pytest.raises(ConfigurationError, match="agent presser must share the first agent's"):
        System.load(agents_config(**OWN), attacker=base, target=base, reference=base)


@pytest.mark.real
def test_a_reference_of_several_is_each_ones_own_start(tmp_path):
    base = tmp_path / "one"
    tiny_language_model(1).save(base)
    tiny_language_model(2).save(base / "agents" / "presser")
    system = System.load(agents_config(**OWN), attacker=base, target=base, reference=base)
    graphs = grown(system)

    assert system.agents[1].reference is not system.reference
    # Nobody has learned, so nobody has moved from where it started.
    for node in graphs[0].nodes():
        assert pytest.approx(0.0, abs=1e-3) == node.kl_nats


def test_rewards_scores_and_kl_are_reported_by_agent(folder):
    system = agents_system(folder, agents_config())
    graph = tiny_graph(
        tiny_node(0.5, tiny_node(1.0, probe_logprobs=(-1.0,) * 3), tiny_node(0.0, failure="x")),
        tiny_node(0.25),
    )
    figures = turn_figures(system.agents, system.player, [graph])

    assert pytest.approx(0.375) == figures["opener/reward"]
    assert (2.0, 1.0) == tuple(figures[f"{n}/num_nodes"] for n in ("opener", "presser"))
    assert (1.0, 1.0) == (figures["presser/reward"], figures["presser/score"])
    assert pytest.approx(1.5) == figures["presser/kl_nats"]
    assert {} == turn_figures((), tiny_system(1).player, [graph])


@pytest.mark.real
def test_an_evaluation_tells_of_each_agent(folder):
    reward = AdversarialReward(AdversarialReward.Options())
    config = EvaluationConfiguration(num_rollouts=2, depth=2, num_resamples=20)
    evaluator = Evaluator(config, prompts=tiny_prompts(2), reward=reward, seed=1)
    found = evaluator.evaluate(agents_system(folder, agents_config()))
    alone = evaluator.evaluate(agents_system(folder, agents_config(roles=[])))
    names = {f"eval/{name}/score" for name in ("opener", "presser")}

    assert names <= found.metrics().keys()
    assert found.intervals == alone.intervals
    assert not any("/" in name for name in alone.figures)


def test_how_a_templated_attacker_reads_is_saved_beside_it(tmp_path):
    config = chat_config(attacker={"instruction": "{goal}?"})
    chat_system(config=config).save(tmp_path / "chat")
    tiny_system(1).save(tmp_path / "plain")

    # Whatever is set now: what was trained is what is evaluated.
    assert config.attacker == as_exported(agents_config(roles=[]), tmp_path / "chat").attacker
    assert agents_config().attacker == as_exported(config, tmp_path / "plain").attacker
    assert not (tmp_path / "plain" / FORMAT).exists()


def test_agents_of_a_templated_attacker_read_their_own_instructions(tmp_path):
    chat_model(4).save(tmp_path)
    own = {"presser": {"instruction": "press {goal}"}}
    changes = {"roles": ("opener", "presser"), "scorer": agents_config().scorer}
    told = agents_config(**own).agents
    config = chat_config(agents=told, **changes)
    system = System.load(config, attacker=tmp_path, target=tmp_path, reference=tmp_path)
    read = [
        system.attacker.decode(_read(system.player(turn), Conversation(PROMPTS[0]), 400)[0])
        for turn in (0, 1)
    ]

    assert "press goal so late" not in read[0]
    assert "press goal so late" in read[1]
    assert system.seen_by(system.agents[1]).player(0).told == system.agents[1].told


def test_the_instruction_of_a_templated_attacker_belongs_to_its_training():
    one, other = (chat_system(config=chat_config(attacker={"instruction": text})) for text in "ab")

    assert one.digest() == other.digest()
    assert one.training_digest() != other.training_digest()
