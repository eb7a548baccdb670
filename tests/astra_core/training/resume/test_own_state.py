"""State and figures of one's own: a sampler's and a trainer's, kept, restored and logged."""

import functools
import itertools

import pytest
import torch
from each_row import each_row
from remembering import Curriculum, Momentum
from tiny_training import assert_same_state, configured, sampler_of, trainer_of, weights_of

from astra_core.registry import BUILT_INS
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.training.trainer import Trainer
from astra_parts.testing import check_sampler, tiny_system

CHANGES = {"training_steps": 4, "num_episodes_per_experience": 2, "evaluate": "none"}
KINDS = {"sampler": Curriculum, "trainer": Momentum}
NONE = {"sampler": TreeSampler, "trainer": Trainer}


@pytest.mark.real
@each_row("kind", KINDS)
def test_what_a_part_of_ones_own_has_learned_is_resumed(kind, tmp_path):
    own = {**NONE, kind: KINDS[kind]}
    whole = trainer_of(configured(**CHANGES), tmp_path / "whole", **own)
    expected = [report.row() for report in whole.steps()]
    cut = trainer_of(configured(**CHANGES), tmp_path / "cut", **own)
    for report in cut.steps():
        if report.training_step == 2:
            break
    resumed = trainer_of(configured(**CHANGES), tmp_path / "cut", **own)

    assert resumed.resume()
    done = resumed.progress.step
    assert expected[done:] == [report.row() for report in resumed.steps()]
    assert weights_of(whole) == weights_of(resumed)
    assert_same_state(whole.store.newest(), resumed.store.newest())


@pytest.mark.real
@each_row("kind", KINDS)
def test_a_resumed_run_needs_that_state(kind, tmp_path, monkeypatch):
    """Otherwise the test above could not fail."""
    own = {**NONE, kind: KINDS[kind]}
    whole = trainer_of(configured(**CHANGES), tmp_path / "whole", **own)
    whole.train()
    cut = trainer_of(configured(**CHANGES), tmp_path / "cut", **own)
    for report in cut.steps():
        if report.training_step == 3:
            break
    monkeypatch.setattr(KINDS[kind], "load_state", lambda *_: None)
    resumed = trainer_of(configured(**CHANGES), tmp_path / "cut", **own)
    resumed.resume()
    resumed.train()

    assert weights_of(whole) != weights_of(resumed)


@each_row("kind", KINDS)
def test_a_checkpoint_without_such_state_still_resumes(kind, tmp_path):
    trainer = trainer_of(configured(**CHANGES), tmp_path)
    steps = trainer.steps()
    next(report for report in steps if report.training_step == 2)
    state = trainer._state
    older = state.checkpoint(trainer.progress, trainer.best, trainer.ending.stopping)
    record = {key: value for key, value in older.record.items() if key != "owners"}
    resumed = trainer_of(configured(**CHANGES), **{**NONE, kind: KINDS[kind]})
    before = {name: value.clone() for name, value in resumed._state._owners[kind].state().items()}
    kept = type(older)(older.step, older.tensors, record)
    resumed._state.load(kept, resumed.best, resumed.ending.stopping, subject="old")

    assert weights_of(trainer) == weights_of(resumed)
    found = resumed._state._owners[kind].state()
    assert all(torch.equal(before[name], found[name]) for name in before)


def test_a_dry_run_leaves_a_sampler_as_it_was():
    trainer = trainer_of(configured(**CHANGES), **KINDS)
    trainer.dry_run()

    assert 0.0 == float(trainer.sampler.rates.sum())


def test_figures_of_ones_own_are_logged_where_they_belong():
    trainer = trainer_of(configured(**CHANGES), **KINDS)
    reports = list(itertools.islice(trainer.steps(), 3))

    assert float(trainer.sampler.rates.min()) == reports[-1].metrics["sampler/hardest"]
    assert trainer.figures()["seen"] == reports[-1].metrics["trainer/seen"]
    assert {"sampler/easiest", "reward/novelty"} <= reports[0].row().keys()


@functools.cache
def _rolled_out():
    sampler = sampler_of(tiny_system(1))
    return sampler.roll_out(sampler.prompts, iteration=0)


@each_row("name", BUILT_INS["reward"])
def test_the_parts_of_a_reward_are_logged_and_add_up_to_it(name):
    from astra_core.config import Choice
    from astra_core.registry import build
    from astra_core.reward import reward_graphs

    reward = build("reward", Choice(name=name))
    graphs = reward_graphs(reward, _rolled_out())
    nodes = [node for graph in graphs for node in graph.nodes()]
    logged = reward.remember(graphs)
    # What was measured, before it is weighted, is logged beside it.
    parts = {part: value for part, value in logged.items() if not part.endswith("_value")}

    assert len(parts) > 2
    assert all(parts.values())
    assert sum(parts.values()) == pytest.approx(sum(node.reward for node in nodes) / len(nodes))
    assert not reward.remember([])


def test_a_reward_need_not_give_figures():
    class Mute(AdversarialReward):
        def remember(self, graphs):
            super().remember(graphs)

    trainer = trainer_of(configured(**CHANGES))
    trainer.sampler.reward = Mute(Mute.Options())
    report = next(trainer.steps())

    assert not [name for name in report.metrics if name.startswith("reward/")]


@pytest.mark.wide
def test_a_sampler_that_keeps_its_state_keeps_the_contract():
    check_sampler(Curriculum)


@pytest.mark.real
def test_a_sampler_that_keeps_half_its_state_is_reported():
    class Half(Curriculum):
        def state(self):
            return {"rates": torch.zeros_like(self.rates)}

    with pytest.raises(AssertionError, match="all that the choice of prompts depends on"):
        check_sampler(Half)
