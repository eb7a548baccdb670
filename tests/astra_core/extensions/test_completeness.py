"""What a plug-in's class leaves out is one line as soon as the class is found."""

import pytest
from each_row import each_row

from astra_core.algorithms.dpo import DPO
from astra_core.errors import ConfigurationError
from astra_core.extensions.completeness import find_omission
from astra_core.registry import BASES, BUILT_INS, resolve
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.training.trainer import Trainer
from astra_parts.algorithms.ppo import PPO


def stub(self, *_):
    return ()


def loop(self):
    yield from self.steps()


def build(self, config, environment, algorithm, dev_prompts=None): ...


WRONG = [
    ("algorithm", DPO, {"state": stub}, "must override load_state() beside state()"),
    ("reward", AdversarialReward, {"load_state": stub}, "must override state() beside"),
    ("algorithm", DPO, {"parameters": stub}, "must override state() beside parameters()"),
    ("trainer", Trainer, {"train": loop}, "must not yield in train(), which is called and not"),
    ("trainer", Trainer, {"__init__": build}, "must be built from config, sampler, algorithm and"),
]
RIGHT = [
    ("algorithm", DPO, {"parameters": stub, "state": stub, "load_state": stub}),
    ("algorithm", PPO, {"parameters": stub}),
    ("trainer", Trainer, {"steps": loop}),
]


@each_row(("kind", "base", "own", "words"), WRONG)
def test_what_is_left_out_is_told(kind, base, own, words):
    assert words in find_omission(kind, type("Mine", (base,), own))


@each_row(("kind", "base", "own"), RIGHT)
def test_what_is_whole_is_let_through(kind, base, own):
    assert "" == find_omission(kind, type("Mine", (base,), own))


@each_row("kind", BASES)
def test_every_built_in_is_whole_and_so_is_what_changes_nothing_in_it(kind):
    for name in BUILT_INS[kind]:
        assert "" == find_omission(kind, type("Mine", (resolve(kind, name),), {}))


def test_a_class_that_is_found_is_looked_at(monkeypatch):
    monkeypatch.setattr("tiny_training.Half", type("Half", (DPO,), {"state": stub}), raising=False)
    with pytest.raises(ConfigurationError, match="algorithm 'tiny_training:Half' must override"):
        resolve("algorithm", "tiny_training:Half")
