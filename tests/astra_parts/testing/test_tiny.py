import math

import torch
from each_row import each_row

from astra_parts.testing import (
    tiny_agents,
    tiny_graph,
    tiny_language_model,
    tiny_node,
    tiny_prompts,
    tiny_system,
)


@each_row("kind", ["llama", "gpt2"])
def test_tiny_models_are_the_same_for_the_same_seed_alone(kind):
    first, same, other = (tiny_language_model(seed, kind=kind) for seed in (3, 3, 4))

    weights = [torch.cat([p.flatten() for p in m.model.parameters()]) for m in (first, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert first.num_parameters < 20_000


@each_row("kind", ["llama", "gpt2"])
def test_tiny_models_of_one_build_are_run_alike(kind):
    """Only the first is tried out; the others are told what it can do."""
    found = [tiny_language_model(3, kind=kind, max_positions=77) for _ in range(2)]

    assert found[0].plan == found[1].plan
    assert ["astra"] * 2 == [one.model.config._attn_implementation for one in found]
    contexts, continuations = [(4, 5, 0), (4, 5, 6, 7)], [(3, 0), (6, 7, 8)]
    logprobs = [one.continuation_logprobs(contexts, continuations) for one in found]
    assert logprobs[0] == logprobs[1]


def test_tiny_models_leave_the_global_random_state_alone():
    before = torch.get_rng_state()

    tiny_language_model(9)

    assert torch.equal(before, torch.get_rng_state())


def test_the_byte_level_tokenizer_knows_every_text():
    model = tiny_language_model(vocabulary=None)

    assert model.decode(model.encode("Grüße, 世界!")) == "Grüße, 世界!"


def test_only_the_attacker_of_a_tiny_system_is_trained():
    system = tiny_system()

    assert all(p.requires_grad for p in system.attacker.model.parameters())
    assert not any(p.requires_grad for p in system.reference.model.parameters())
    assert system.shares_tokenizer
    assert system.reference_is_target


def test_the_reference_of_a_tiny_system_can_be_another_than_the_attacker():
    def weights(model):
        return torch.cat([p.detach().flatten() for p in model.model.parameters()])

    plain, moved = tiny_system(3), tiny_system(3, reference_seed=4)
    assert torch.equal(weights(plain.attacker), weights(moved.attacker))
    assert torch.equal(weights(plain.attacker), weights(plain.reference))
    assert not torch.equal(weights(moved.attacker), weights(moved.reference))


def test_tiny_prompts_differ():
    prompts = tiny_prompts(20)

    assert len({prompt.text for prompt in prompts}) == 20
    assert len({prompt.prompt_id for prompt in prompts}) == 20


def test_tiny_graph_gives_every_turn_the_path_of_its_place():
    graph = tiny_graph(tiny_node(0.1, tiny_node(0.7), tiny_node(0.2)), tiny_node(math.pi))

    assert [node.path for node in graph.nodes()] == [(0,), (1,), (0, 0), (0, 1)]
    assert [node.reward for node in graph.nodes()] == [0.1, math.pi, 0.7, 0.2]


def test_the_second_of_two_agents_has_an_instruction():
    system = tiny_system(1)
    found = tiny_agents(system)

    assert ["first", "second", "second"] == [found.player(turn).name for turn in range(3)]
    assert (system.attacker,) * 2 == tuple(agent.model for agent in found.agents)
    told = [found.player(turn).instruction_ids for turn in range(2)]
    assert ((), system.attacker.encode("so bad")) == (told[0], told[1][:2])
    assert () == system.agents
