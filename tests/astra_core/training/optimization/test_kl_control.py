from dataclasses import replace

import pytest
import torch
from each_row import wide_but
from tiny_training import choice, configured, trainer_of, weights_of

from astra_core.training.optimization.kl_control import moved_nats, spread

ALGORITHMS = (
    *("dpo", "trajectory_balance", "sft", "reinforce", "rloo", "grpo", "ppo"),
    "expert_iteration",
)
LONG = {"epochs_per_experience": 4, "lr": 0.05, "training_steps": 2}


def run(folder=None, **changes):
    trainer = trainer_of(configured(**{**LONG, **changes}), folder, is_evaluated=False)
    return trainer, list(trainer.steps())


@pytest.mark.parametrize("name", wide_but(ALGORITHMS, "dpo", "reinforce"))
def test_every_algorithm_tells_how_far_its_probes_have_moved(name):
    trainer, reports = run(algorithm=choice(name), training_steps=1, epochs_per_experience=2)

    of_first = [report.metrics["train/moved_nats"] for report in reports]
    assert of_first[0] == pytest.approx(0.0, abs=1e-6)
    assert max(of_first) > 1e-4
    assert [1] == [move.training_step for move in trainer.progress.moves]
    assert all(move.nats > 0.0 for move in trainer.progress.moves)


@pytest.mark.real
def test_beyond_the_trust_region_the_rest_of_an_experience_is_left_out():
    _, free = run(kl={"max_per_experience_nats": None})
    moved = [r.metrics["train/moved_nats"] for r in free if r.training_step == 1]
    limit = max(moved) / 2
    first = next(at for at, nats in enumerate(moved) if nats > limit)

    trainer, held = run(kl={"max_per_experience_nats": limit})

    own = [report for report in held if report.training_step == 1]
    assert [False] * first + [True] == [report.is_skipped for report in own]
    assert trainer.progress.moves[0].is_cut
    assert 0 == trainer.progress.num_nonfinite
    # The next experience is learned from again.
    assert 2 == trainer.progress.training_step
    assert not next(report for report in held if report.training_step == 2).is_skipped


def test_an_update_beyond_the_limit_moves_no_weight():
    config = configured(**LONG, kl={"max_per_experience_nats": None})
    trainer = trainer_of(config, is_evaluated=False)
    updates, before = trainer.updates, weights_of(trainer)
    experience = trainer.harness.collect(0, trainer.harness.collect(0, None).graphs)
    batches = list(trainer.harness.batches(experience, epoch=0, batch_size=4))
    step = {"training_step": 0}
    held = replace_limit(updates, 1e-9)
    trainer.algorithm.step = shifted(trainer.algorithm.step)

    assert held.apply(batches, **step).is_cut
    assert before == weights_of(trainer)
    assert not replace_limit(updates, None).apply(batches, **step).is_cut
    assert before != weights_of(trainer)


def replace_limit(updates, limit):
    kl = updates._config.kl.model_copy(update={"max_per_experience_nats": limit})
    updates._config = updates._config.model_copy(update={"kl": kl})
    return updates


def shifted(step):
    """The step with a movement of one nat."""

    def call(batch):
        loss, logs = step(batch)
        return loss, {**logs, "moved_nats": 1.0, "moved_probes": 1.0}

    return call


@pytest.mark.real
def test_micro_batches_do_not_change_what_is_left_out():
    limit = {"kl": {"max_per_experience_nats": 0.05}, "training_steps": 1, "shuffle": "steps"}
    whole, one = run(batch_size=4, **limit)
    parts, other = run(batch_size=1, gradient_accumulation_steps=4, **limit)

    assert whole.progress.moves[0].is_cut
    assert [report.is_skipped for report in one] == [report.is_skipped for report in other]
    nats = [[r.metrics["train/moved_nats"] for r in reports] for reports in (one, other)]
    assert nats[0] == pytest.approx(nats[1], rel=1e-3, abs=1e-6)
    assert whole.progress.moves[0].nats == pytest.approx(parts.progress.moves[0].nats, rel=1e-3)


@pytest.mark.real
def test_a_loop_by_hand_is_watched_and_held_too():
    trainer = trainer_of(
        configured(**LONG, kl={"max_per_experience_nats": 1e-3}), is_evaluated=False
    )
    heard = []
    trainer.reports.to(heard.append)
    for _ in range(2):
        for batch in trainer.harness.experience():
            loss, _ = trainer.harness.step(batch)
            loss.backward()
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
    trainer.reports.flush()

    assert [True, True] == [move.is_cut for move in trainer.progress.moves]
    first = [report.is_skipped for report in heard if report.training_step == 1]
    assert [False, True, True] == [first[0], *first[-2:]]


def test_nothing_is_measured_of_failed_or_unknown_probes():
    trainer = trainer_of(configured(), is_evaluated=False)
    graph = trainer.harness.collect(5, None).graphs[0]
    unknown = [
        replace(node, probe=replace(node.probe, logprobs=()), children=())
        for node in graph.children
    ]

    assert (0.0, 0.0) == moved_nats(
        trainer.sampler.system, [replace(graph, children=tuple(unknown))]
    )
    here, _ = moved_nats(trainer.sampler.system, [graph])
    assert here == pytest.approx(0.0, abs=1e-6)


def test_places_are_spread_over_all():
    assert [0, 33, 66] == spread(100, 3)
    assert [0, 1] == spread(2, 3)


def test_no_random_number_is_drawn():
    trainer = trainer_of(configured(), is_evaluated=False)
    graphs = trainer.harness.collect(5, None).graphs
    before = torch.get_rng_state()

    moved_nats(trainer.sampler.system, graphs)

    assert torch.equal(before, torch.get_rng_state())
