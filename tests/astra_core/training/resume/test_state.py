"""A run that was stopped, by a person or by SIGKILL, ends as if it had not been."""

import json
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from each_row import each_row, wide_but
from hypothesis import given, strategies as st
from tiny_agents import agents_config, agents_trainer, weights
from tiny_training import assert_same_state, choice, configured, trainer_of, weights_of

from astra_core.config import SystemConfiguration
from astra_core.errors import CheckpointError
from astra_core.registry import BUILT_INS, build
from astra_core.samplers.tree import TreeSampler
from astra_core.target import Surroundings
from astra_core.training.resume.state import as_json, from_json
from astra_core.training.trainer import Trainer
from astra_parts.testing import tiny_language_model

HERE = Path(__file__).parents[2]


def interrupted(config, folder, *, after, **own):
    """The folder of a run that was left in the middle of the training step after ``after``."""
    for report in trainer_of(config, folder, **own).steps():
        if report.training_step == after + 1:
            break


def check_resumed(tmp_path, *, after=1, sampler=TreeSampler, **changes):
    config = configured(training_steps=after + 2, **changes)
    whole = trainer_of(config, tmp_path / "whole", sampler=sampler)
    expected = [report.row() for report in whole.steps()]
    interrupted(config, tmp_path / "cut", after=after, sampler=sampler)
    resumed = trainer_of(config, tmp_path / "cut", sampler=sampler)

    assert resumed.resume()
    assert resumed.progress.training_step <= after
    done = resumed.progress.step
    assert expected[done:] == [report.row() for report in resumed.steps()]
    assert weights_of(whole) == weights_of(resumed)
    assert whole.progress == resumed.progress
    assert_same_state(whole.store.newest(), resumed.store.newest())


@pytest.mark.real
@pytest.mark.parametrize("name", wide_but(BUILT_INS["algorithm"], "dpo", "ppo"))
def test_every_algorithm_continues_where_it_stopped(tmp_path, name):
    check_resumed(tmp_path, algorithm=choice(name), eval_every=9)


@pytest.mark.real
@pytest.mark.parametrize("name", wide_but(BUILT_INS["optimizer"], "sgd"))
def test_every_optimizer_continues_where_it_stopped(tmp_path, name):
    options = {"sgd": {"momentum": 0.9}, "rmsprop": {"momentum": 0.5, "centered": True}}
    check_resumed(tmp_path, optimizer=choice(name, **options.get(name, {})), eval_every=9)


@pytest.mark.real
def test_a_schedule_continues_where_it_stopped(tmp_path):
    check_resumed(
        tmp_path, schedule=choice("transformers", kind="cosine"), warmup_steps=2, eval_every=9
    )


@pytest.mark.real
@each_row(
    "changes",
    [
        {"checkpoint": {"save_every": 2}, "after": 3},
        {"checkpoint": {"save_every": 9}, "after": 3},
        {"epochs_per_experience": 2, "batch_size": 2, "gradient_accumulation_steps": 2},
        {"early_stopping": {"patience": 2}, "eval_every": 1, "metric": "eval/failed_rate"},
        {"after": 0},
    ],
)
def test_a_run_continues_from_wherever_its_last_checkpoint_is(tmp_path, changes):
    check_resumed(tmp_path, **changes)


class Several(TreeSampler):
    """Leads each tree against one of two targets."""

    def __init__(self, options, *, system, **more):
        harsh, mild = (
            {"name": "scripted", "label": word, "weight": weight, "options": {"otherwise": [word]}}
            for word, weight in (("bad", 2), ("good", 1))
        )
        read = SystemConfiguration.model_validate({"target": [harsh, mild]})
        target = build("target", read.target, surroundings=Surroundings(system.config))
        several = replace(system, target=target, target_digest=target.digest())
        super().__init__(options, system=several, **more)


@pytest.mark.real
def test_a_run_against_several_targets_continues_where_it_stopped(tmp_path):
    check_resumed(tmp_path, sampler=Several, num_episodes_per_experience=4)


@pytest.mark.real
def test_torchs_random_state_continues_too(tmp_path):
    trainer = trainer_of(configured(), tmp_path)
    torch.manual_seed(123)
    trainer.train()
    expected = torch.rand(3)
    resumed = trainer_of(configured(), tmp_path)
    resumed.resume()

    assert torch.equal(expected, torch.rand(3))


def test_a_new_run_has_nothing_to_continue_from(tmp_path):
    assert not trainer_of(configured(), tmp_path).resume()
    assert not trainer_of(configured()).resume()


class Infinite(Trainer):
    """An evaluation's figure need not be finite."""

    def examine(self, evaluator):
        return {**super().examine(evaluator), "eval/own": math.inf}


def test_a_figure_without_an_end_is_kept_in_a_checkpoint(tmp_path):
    config = configured(metric="eval/kl_nats")
    whole, resumed = (trainer_of(config, tmp_path / "run", trainer=Infinite) for _ in range(2))
    whole.evaluate()
    whole.save()

    assert resumed.resume()
    assert math.inf == resumed.progress.evaluations[-1].metrics["eval/own"]
    assert whole.progress == resumed.progress


@pytest.mark.real
def test_a_run_that_has_ended_only_puts_its_best_weights_back(tmp_path):
    first = trainer_of(configured(), tmp_path)
    first.train()
    again = trainer_of(configured(), tmp_path)
    again.resume()

    assert [] == list(again.steps())
    assert weights_of(first) == weights_of(again)
    assert first.progress == again.progress


@pytest.mark.real
def test_a_damaged_checkpoint_costs_a_step_and_changes_nothing(tmp_path):
    whole = trainer_of(configured(), tmp_path / "whole")
    whole.train()
    interrupted(configured(), tmp_path / "cut", after=2)
    os.truncate(tmp_path / "cut" / "step_000002" / "state.safetensors", 100)
    resumed = trainer_of(configured(), tmp_path / "cut")
    resumed.resume()

    assert resumed.progress.training_step == 1
    resumed.train()
    assert weights_of(whole) == weights_of(resumed)


def test_another_configuration_does_not_continue_and_names_what_changed(tmp_path):
    trainer_of(configured(training_steps=1), tmp_path, is_evaluated=False).train()
    other = trainer_of(configured(lr=0.5, batch_size=3), tmp_path)

    with pytest.raises(CheckpointError, match=r"'batch_size', 'lr'"):
        other.resume()


def test_another_model_does_not_continue(tmp_path):
    trainer_of(configured(training_steps=1), tmp_path, is_evaluated=False).train()
    other = trainer_of(configured(), tmp_path)
    other.sampler.system.attacker.model = tiny_language_model(vocabulary=("a", "b")).model

    with pytest.raises(CheckpointError, match=r"of shape \(4, 16\), got shape"):
        other.resume()


def killed_at_every(stride, folder, versions):
    """What ``killed_training.py`` reports."""
    paths = [str(HERE.parents[1]), str(HERE)]
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_training.py"), str(folder), str(stride), str(versions)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout)


@pytest.mark.wide
@pytest.mark.parametrize("versions", [0, 2])
def test_a_run_may_be_killed_before_each_stage_and_whenever_it_writes(tmp_path, versions):
    found = killed_at_every(7, tmp_path, versions)

    # Two iterations of four stages.
    assert 8 == len(found["stages"]) < len(found["signals"])
    assert {signal.SIGKILL} == set(found["signals"])
    assert [] == found["wrong"]


AGENTS = {
    "own": ({"presser": {"model": "own"}}, {}),
    "shared": ({}, {}),
    "parts": ({"presser": {"own_weights": "mlp"}}, {}),
    "frozen": ({"presser": {"model": "own"}}, {"agents": {"opener": {"trainable": False}}}),
    "rates": (
        {"presser": {"model": "own", "instruction": "so bad"}},
        {"agents": {"presser": {"lr": 0.02, "schedule": choice("annealing")}}},
    ),
    "adapters": (
        {"presser": {"own_weights": "lora_"}},
        {"lora": {"rank": 2, "alpha": 4.0, "target_modules": ["q_proj"]}},
    ),
}


@pytest.mark.real
@pytest.mark.parametrize("name", wide_but(AGENTS, "parts", "frozen"))
def test_several_agents_continue_where_they_stopped(tmp_path, name):
    agents, changes = AGENTS[name]
    changes = {"training_steps": 3, "metric": "eval/kl_nats", "eval_every": 1, **changes}
    ends = []
    for cut in (False, True):
        store = tmp_path / str(cut)
        if cut:
            trainer = agents_trainer(
                tmp_path, agents_config(**agents), store=store, is_evaluated=True, **changes
            )
            for report in trainer.steps():
                if report.training_step == 2:
                    break
        trainer = agents_trainer(
            tmp_path, agents_config(**agents), store=store, is_evaluated=True, **changes
        )
        assert cut == trainer.resume()
        rows = [report.row() for report in trainer.steps()]
        ends.append((trainer, rows[-1], [weights(a.model) for a in trainer.sampler.system.agents]))
    (whole, row, before), (resumed, again, after) = ends

    assert row == again
    for some, others in zip(before, after, strict=True):
        assert some.keys() == others.keys()
        assert all(torch.equal(some[key], others[key]) for key in some)
    assert whole.progress == resumed.progress
    assert_same_state(whole.store.newest(), resumed.store.newest())
    # The best weights of all agents are in one folder; of adapters the base is not kept again.
    best, is_lora = whole.store.model(whole.best.model), "lora" in changes
    assert is_lora == (not (best / "config.json").exists())
    file = "adapters.safetensors" if is_lora else "config.json"
    assert (best / "agents/presser" / file).is_file() == (name != "shared")


def test_a_run_of_other_roles_is_not_resumed(tmp_path):
    for roles in (["opener", "presser"], ["opener", "opener"]):
        trainer = agents_trainer(tmp_path, agents_config(roles=roles), store=tmp_path / "run")
        if roles[1] == "presser":
            next(iter(trainer.steps()))
            trainer.save()
        else:
            with pytest.raises(CheckpointError, match="must have system"):
                trainer.resume()


# As st.text() without an alphabet, which takes seconds to find out what UTF-8 encodes.
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(TEXT, inner)
        | st.dictionaries(st.integers(), inner, min_size=1)
    ),
)


@pytest.mark.real
@given(PLAIN)
def test_what_goes_through_json_comes_back(value):
    text = json.dumps(as_json(value, subject="it"), allow_nan=False)

    assert value == from_json(json.loads(text))


def test_a_nan_a_table_by_step_and_a_tuple_come_back_too():
    assert math.isnan(from_json(as_json(math.nan, subject="it")))
    assert {3: 1, 7: 2} == from_json(as_json(Counter({3: 1, 7: 2}), subject="it"))
    assert [1, [2]] == from_json(as_json((1, (2,)), subject="it"))


def test_what_json_has_is_left_as_it_is():
    value = {"base_lrs": [0.1, 2], "last_epoch": 3, "lr_lambdas": [None], "is": True}

    assert value == as_json(value, subject="it")


def test_what_is_no_plain_value_is_refused():
    with pytest.raises(CheckpointError, match=r"schedule 'x' must have a state .* got a object in"):
        as_json({"a": [object()]}, subject="schedule 'x'")
