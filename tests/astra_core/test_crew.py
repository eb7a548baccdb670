import math

import pytest
import torch
from closed_executors import close_executors
from tiny_folders import tiny_folders, torch_as_before

from astra_core.config import (
    Choice,
    EvaluationConfiguration,
    GenerationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
)
from astra_core.sampler import rolled_out
from astra_parts.assembly import build_evaluator, build_sampler, load_system
from astra_parts.testing import tiny_prompts

SHORT = GenerationConfiguration(max_new_tokens=3)
SYSTEM = SystemConfiguration(
    max_context_tokens=64,
    probe=SHORT,
    response=SHORT,
    scorer=Choice(name="phrases", options={"phrases": ["bad", "worse"]}),
)
LOCAL = Choice(name="local")
TWO = Choice(name="processes", options={"num_workers": 2})
THREE = Choice(name="processes", options={"num_workers": 3})
PROMPTS = tiny_prompts(7)
REWARD = Choice(name="adversarial")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    yield tiny_folders(tmp_path_factory.mktemp("models"))
    close_executors()


@pytest.fixture(autouse=True)
def _as_before():
    with torch_as_before():
        yield


def system_of(folders, executor, per_shard=2):
    machine = MachineConfiguration(prompts_per_shard=per_shard)
    return load_system(SYSTEM, folders, machine=machine, is_trained=True, executor=executor)


def rolled(system, iteration=0):
    sampler = build_sampler(RolloutsConfiguration(), REWARD, system=system, prompts=PROMPTS, seed=3)
    return rolled_out(sampler, PROMPTS, iteration=iteration)


def evaluated(system):
    config = EvaluationConfiguration(num_resamples=10)
    return build_evaluator(config, REWARD, prompts=PROMPTS, seed=3).evaluate(system)


def moved(system):
    """The attacker after an update, of some of its weights."""
    with torch.no_grad():
        for number, weight in enumerate(system.attacker.model.parameters()):
            if number % 2:
                weight.mul_(1.5)
    return system


@pytest.mark.real
def test_any_number_of_workers_gives_the_graphs_that_one_process_gives(folders):
    here = rolled(system_of(folders, LOCAL))

    assert here == rolled(system_of(folders, TWO))


@pytest.mark.wide
def test_one_worker_more_changes_nothing(folders):
    assert rolled(system_of(folders, LOCAL)) == rolled(system_of(folders, THREE))


@pytest.mark.real
def test_workers_have_the_weights_of_now_also_when_they_are_the_first_again(folders):
    here, there = system_of(folders, LOCAL), system_of(folders, TWO)
    first = rolled(here)
    before = {name: own.clone() for name, own in there.attacker.model.state_dict().items()}

    assert first != rolled(moved(here)) == rolled(moved(there))
    there.attacker.model.load_state_dict(before)
    assert first == rolled(there)


def test_only_what_has_changed_is_sent(folders):
    system = system_of(folders, TWO)
    assert system.crew.weights(system) is None

    with torch.no_grad():
        next(system.attacker.model.parameters()).add_(1.0)
    sent = system.crew.weights(system)
    assert len(sent.data) < 0.5 * sum(4 * own.numel() for own in system.attacker.model.parameters())
    assert sent == system.crew.weights(system)


@pytest.mark.wide
def test_an_evaluation_by_workers_is_the_same(folders):
    here, there = (evaluated(system_of(folders, own)) for own in (LOCAL, TWO))

    assert here.graphs == there.graphs
    assert here.metrics() == there.metrics()


@pytest.mark.real
def test_shards_are_of_the_size_that_is_asked_for_and_only_round_differently(folders):
    sharded, whole = rolled(system_of(folders, LOCAL)), rolled(system_of(folders, LOCAL, 0))
    pairs = [
        (own, other)
        for graph, same in zip(sharded, whole, strict=True)
        for own, other in zip(graph.nodes(), same.nodes(), strict=True)
    ]

    assert all(own.probe_ids == other.probe_ids for own, other in pairs)
    assert all(own.response_ids == other.response_ids for own, other in pairs)
    assert all(
        math.isclose(a, b, abs_tol=1e-4)
        for own, other in pairs
        for a, b in zip(own.probe_logprobs, other.probe_logprobs, strict=True)
    )


def test_a_default_system_has_one_shard_in_this_process(folders):
    assert system_of(folders, LOCAL, 0).crew.is_plain
    assert not system_of(folders, LOCAL, 2).crew.is_plain
    assert not system_of(folders, TWO, 2).crew.is_plain
    assert load_system(SYSTEM, folders).crew is None


def test_failures_are_counted_over_all_shards(folders, monkeypatch):
    system = system_of(folders, LOCAL)
    sampler = build_sampler(
        RolloutsConfiguration(max_failed_fraction=0.2),
        REWARD,
        system=system,
        prompts=PROMPTS,
        seed=3,
    )
    refused = []
    monkeypatch.setattr(sampler, "refuse_many_failures", refused.append)
    rolled_out(sampler, PROMPTS, iteration=0)

    # Once per shard, where all may fail, and then for all of them together.
    assert [2, 2, 2, 1, 7] == [len(graphs) for graphs in refused]
    assert 0.2 == sampler.max_failed_fraction
