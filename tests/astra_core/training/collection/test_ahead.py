import json
import math
from dataclasses import replace

import pytest
import torch
from closed_executors import close_executors
from each_row import wide_but
from remembering import Curriculum
from tiny_folders import tiny_folders, torch_as_before
from tiny_training import assert_same_state, choice, configured, trainer_of, weights_of

from astra_core.config import (
    Choice,
    GenerationConfiguration,
    MachineConfiguration,
    RolloutsConfiguration,
    SystemConfiguration,
)
from astra_core.errors import ConfigurationError
from astra_core.rollout import Failure, Prompt, Replies
from astra_core.training.collection.ahead import Ahead, graph_of, graph_record
from astra_core.training.distribution.distributed import World
from astra_parts.assembly import build_sampler, load_system
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts

GRPO = {"algorithm": choice("grpo"), "training_steps": 4, "evaluate": "none", "keep": "last"}
CORRECTIONS = ("none", "token", "sequence", "sequence_mask")


def staleness(versions, correction="none", cap=None):
    return {"max_versions": versions, "correction": correction, "cap": cap}


def trained(stale=None, folder=None, **options):
    """A finished run, and its reports."""
    own = {"staleness": stale} if stale else {}
    trainer = trainer_of(configured(**GRPO, **own), folder, is_evaluated=False, **options)
    trainer.resume()
    return trainer, [report.row() for report in trainer.steps()]


@pytest.fixture(scope="module")
def plain():
    """A run whose every experience is of the attacker of now."""
    return trained()


@pytest.mark.real
def test_no_staleness_is_the_synchronous_run_to_the_byte(plain, tmp_path):
    trainer, rows = trained(staleness(0), tmp_path)
    stored = trainer.store.newest()

    assert weights_of(plain[0]) == weights_of(trainer)
    assert plain[1] == rows
    assert not [name for name in {*rows[0], *stored.tensors} if "stale" in name or "ahead" in name]


@pytest.mark.real
@pytest.mark.parametrize("correction", wide_but(CORRECTIONS, "none", "token"))
def test_an_older_attacker_samples_and_the_same_bytes_come_of_it_again(plain, correction):
    cap = 1.5 if correction == "sequence_mask" else None
    (some, rows), (other, again) = (trained(staleness(2, correction, cap)) for _ in range(2))

    assert weights_of(some) == weights_of(other) != weights_of(plain[0])
    assert rows == again
    assert {1: 0.0, 2: 1.0, 3: 2.0, 4: 2.0} == {
        row["training_step"]: row["rollout/staleness"] for row in rows
    }


@pytest.mark.wide
@pytest.mark.parametrize(
    ("some", "other"),
    [
        (staleness(1), staleness(2)),
        (staleness(1), staleness(1, "token")),
        (staleness(1, "token"), staleness(1, "token", 1.001)),
    ],
)
def test_every_setting_changes_what_is_learned(some, other):
    assert weights_of(trained(some)[0]) != weights_of(trained(other)[0])


@pytest.mark.real
def test_every_experience_is_of_the_version_that_the_schedule_names():
    """The behaviour log-probabilities are those of that version, which is read once more."""
    trainer = trainer_of(configured(**GRPO, staleness=staleness(1)), is_evaluated=False)
    model, versions, errors = trainer.sampler.system.attacker, [], []
    collected = trainer.harness.collect

    def watched(iteration, graphs):
        versions.append({name: p.clone() for name, p in model.model.state_dict().items()})
        found = collected(iteration, graphs)
        model.model.load_state_dict(versions[max(iteration - 1, 0)])
        nodes = [node for graph in found.graphs for node in graph.nodes()]
        read = model.continuation_logprobs(
            [node.context_ids for node in nodes], [node.probe_ids for node in nodes]
        )
        errors.extend(
            abs(float(torch.tensor(own).sub(torch.tensor(node.probe_logprobs)).abs().max()))
            for own, node in zip(read, nodes, strict=True)
        )
        model.model.load_state_dict(versions[iteration])
        return found

    trainer.harness.collect = watched
    trainer.train()

    assert max(errors) < 1e-4
    assert len(versions) == 4


@pytest.mark.real
def test_a_run_that_is_cut_continues_with_what_it_had_collected(tmp_path):
    stale = staleness(2, "token")
    whole, _ = trained(stale, tmp_path / "whole")
    cut = trainer_of(configured(**GRPO, staleness=stale), tmp_path / "cut", is_evaluated=False)
    for report in cut.steps():
        if report.training_step == 3:
            break

    resumed, rows = trained(stale, tmp_path / "cut")

    assert {3, 4} == {row["training_step"] for row in rows}
    assert weights_of(whole) == weights_of(resumed)
    assert_same_state(whole.store.newest(), resumed.store.newest())


@pytest.mark.wide
def test_a_longer_run_is_the_same_as_one_that_was_long_from_the_start(tmp_path):
    stale = {**GRPO, "staleness": staleness(2)}
    long, _ = trained(staleness(2))
    trainer_of(configured(**{**stale, "training_steps": 2}), tmp_path, is_evaluated=False).train()

    longer = trainer_of(configured(**stale), tmp_path, is_evaluated=False)
    assert longer.resume()
    longer.train()

    assert weights_of(long) == weights_of(longer)


@pytest.mark.real
def test_a_curriculum_chooses_by_what_it_knew_when_collecting_began(tmp_path):
    parts = {"sampler": Curriculum}
    (some, _), (other, _) = (trained(staleness(1), tmp_path / name, **parts) for name in "ab")
    plain, _ = trained(**parts)

    assert weights_of(some) == weights_of(other) != weights_of(plain)


def test_an_algorithm_that_weighs_no_probes_cannot_be_corrected():
    stale = configured(staleness=staleness(1, "token"))

    with pytest.raises(ConfigurationError, match=r"correction must be 'none' for DPO"):
        trainer_of(stale)
    assert (
        1.0
        == [*trainer_of(configured(staleness=staleness(1))).steps()][-1].metrics[
            "rollout/staleness"
        ]
    )


def test_a_dry_run_collects_nothing_ahead():
    trainer = trainer_of(configured(**GRPO, staleness=staleness(3)), is_evaluated=False)
    trainer.dry_run()

    assert {"num_dropped"} == trainer.harness.ahead.state().keys()


def test_a_loop_that_jumps_leaves_what_was_collected_for_elsewhere_and_counts_it():
    sampler = trainer_of(configured(**GRPO), is_evaluated=False).sampler
    ahead = Ahead(sampler, max_versions=1, num_episodes=2, world=World())
    ahead.begin(0)
    ahead.begin(7)

    graphs, version = ahead.take(7)

    assert (2, 7) == (ahead.num_dropped, version)
    assert {7} == {graph.iteration for graph in graphs}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    yield tiny_folders(tmp_path_factory.mktemp("models"))
    close_executors()


@pytest.mark.wide
def test_workers_collect_in_the_background_what_one_process_collects(folders):
    two = Choice(name="processes", options={"num_workers": 2})
    with torch_as_before():
        found = [_moved_between(folders, own) for own in (Choice(name="local"), two)]

    assert found[0] == found[1]


def system_config():
    short = GenerationConfiguration(max_new_tokens=6)
    scorer = Choice(name="phrases", options={"phrases": ["bad", "worse"]})
    return SystemConfiguration(max_context_tokens=64, probe=short, response=short, scorer=scorer)


def _moved_between(folders, executor):
    """What is collected ahead, of an attacker that is moved as soon as that is begun."""
    machine = MachineConfiguration(prompts_per_shard=1)
    system = load_system(
        system_config(), folders, machine=machine, is_trained=True, executor=executor
    )
    reward = Choice(name="adversarial")
    prompts = tiny_prompts(7)
    rollouts = RolloutsConfiguration()
    sampler = build_sampler(rollouts, reward, system=system, prompts=prompts, seed=3)
    ahead = Ahead(sampler, max_versions=1, num_episodes=4, world=World())
    found = []
    for step in range(3):
        ahead.begin(step)
        with torch.no_grad():
            for weight in system.attacker.model.parameters():
                weight.mul_(1.1)
        found.append(ahead.take(step))
    return found


def through_json(graph):
    return graph_of(json.loads(json.dumps(graph_record(graph))))


def test_a_graph_is_the_same_after_it_was_json():
    replies = Replies(
        texts=("no", "never"),
        scores=(0.1, None),
        token_ids=((13, 0), (3,)),
        probe_logprobs=(-1 / 3, -math.pi, -1e-17),
        unjudged=("", "silent"),
        labels=({"insult": 0.25}, {}),
        rationales=("mild", ""),
    )
    deep = tiny_node(0.1, probe_logprobs=(-0.1, -0.2, -0.30000000000000004))
    node = replace(tiny_node(0.7, deep, tiny_node(-2.0)), outcome=replies)
    lost = replace(tiny_node(0.0), outcome=Failure("no answer", "timeout"))
    weighed = replace(node.probe, weights=(0.5, 2.0, 1.0))
    prompt = Prompt.of("why so bad", {"category": "noise", "level": 3, "odd": None})
    graph = tiny_graph(
        replace(node, probe=weighed), lost, prompt=replace(prompt, run_id=2), iteration=7
    )

    assert graph == through_json(graph)


def test_what_is_no_number_is_kept_too():
    graph = tiny_graph(tiny_node(math.nan))

    assert math.isnan(through_json(graph).children[0].reward)
