"""Options need not be named where there are none: by name, by file and in Python."""

import pytest
from each_row import each_row

from astra_core.algorithms.dpo import DPO
from astra_core.config import Choice, NonNegative, Section
from astra_core.errors import ConfigurationError, PluginError
from astra_core.extensions.plugin_class import default_options, find_omission
from astra_core.registry import BASES, BUILT_INS, bases_of, build, resolve
from astra_core.reward import Reward
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.training.trainer import Trainer
from astra_parts.algorithms.ppo import PPO
from astra_parts.scorers.phrases import PhraseScorer

SOURCE = """
from astra_core.reward import Reward

class Plain(Reward):
    def __init__(self):
        super().__init__()
        self.memory = []
    def assign(self, graphs):
        return graphs
"""


class Plain(Reward):
    def __init__(self):
        super().__init__()
        self.memory = []

    def assign(self, graphs):
        return graphs


class Bare(Plain):
    def __init__(self):
        self.memory = []


class Weighed(Reward):
    class Options(Section):
        weight: NonNegative = 0.5

    def __init__(self):
        super().__init__()

    def assign(self, graphs):
        return graphs


def test_a_class_has_its_default_options_where_none_are_given():
    assert AdversarialReward.Options() == AdversarialReward().options


def test_given_options_are_those_of_the_plugin():
    options = AdversarialReward.Options(novelty_weight=0.75)

    assert options is AdversarialReward(options).options
    assert options is AdversarialReward(options=options).options


def test_options_without_a_default_are_asked_for():
    with pytest.raises(ConfigurationError, match=r"PhraseScorer\.Options\.phrases must be given"):
        PhraseScorer()


def test_a_constructor_need_not_take_options(tmp_path, monkeypatch):
    (tmp_path / "plain.py").write_text(SOURCE, "utf-8")
    monkeypatch.chdir(tmp_path)

    for built in (
        Plain(),
        Bare(),
        build("reward", Choice(name=f"{__name__}:Plain")),
        build("reward", Choice(name="plain.py:Plain")),
    ):
        assert ([], Reward.Options()) == (built.memory, built.options)


def test_options_that_a_constructor_would_drop_are_refused():
    name = f"{__name__}:Weighed"

    assert 0.5 == build("reward", Choice(name=name)).options.weight
    with pytest.raises(PluginError, match="takes 1 positional argument"):
        build("reward", Choice(name=name, options={"weight": 0.25}))


@each_row("kind", sorted(set(BASES) - {"trainer"}))
def test_every_kind_has_options_by_default(kind):
    for base in bases_of(kind):
        assert base.Options() == default_options(base)


class Told(Plain):
    def __init__(self, word="nothing"):
        self.memory = [word]


class Counted(Plain):
    def __init__(self, *numbers):
        self.memory = list(numbers)


def test_a_constructor_of_ones_own_is_called_as_it_is_written():
    """A subclass may take something else; what it has as defaults is not replaced."""
    assert ["nothing"] == Told().memory
    assert ["this"] == Told("this").memory
    assert [] == Counted().memory
    assert [1, 2] == Counted(1, 2).memory


def stub(self, *_):
    return ()


def loop(self):
    yield from self.steps()


def made(self, config, environment, algorithm, dev_prompts=None): ...


WRONG = [
    ("algorithm", DPO, {"state": stub}, "must override load_state() beside state()"),
    ("reward", AdversarialReward, {"load_state": stub}, "must override state() beside"),
    ("algorithm", DPO, {"parameters": stub}, "must override state() beside parameters()"),
    ("trainer", Trainer, {"train": loop}, "must not yield in train(), which is called and not"),
    ("trainer", Trainer, {"__init__": made}, "must be built from config, sampler, algorithm and"),
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
