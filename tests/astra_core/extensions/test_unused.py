"""What a class says and nothing would ask for is one line; what may be called is let through."""

import sys
from types import ModuleType

import pytest
from each_row import each_row
from unused_classes import RIGHT, WRONG

from astra_core.errors import ConfigurationError
from astra_core.extensions.unused import unused
from astra_core.registry import BASES, BUILT_INS, resolve

HEAD = """
from astra_core.algorithms.dpo import DPO
from astra_core.algorithms.ppo import PPO
from astra_core.algorithms.reinforce import REINFORCE
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.tree import TreeSampler
from astra_core.scorer import Scorer
from astra_core.training.optimization.optimizers import AdamW
from astra_core.training.trainer import Trainer
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a module, as a user's file is one; gives the class of it that is named Mine."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(code):
        name = f"own_{abs(hash(code))}"
        (tmp_path / f"{name}.py").write_text(HEAD + code, "utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return f"{name}:Mine"

    return write


def refused(kind, path):
    with pytest.raises(ConfigurationError) as caught:
        resolve(kind, path)
    (line,) = str(caught.value).splitlines()
    return line


@pytest.mark.parametrize("name", WRONG)
def test_what_nothing_would_call_is_one_line(name, plugin):
    kind, code, words = WRONG[name]
    path = plugin(code)
    line = refused(kind, path)

    assert line.startswith(f"{kind} '{path}' must ")
    assert words in line


@pytest.mark.parametrize("name", RIGHT)
def test_what_may_be_called_is_let_through(name, plugin):
    kind, code = RIGHT[name]

    assert "Mine" == resolve(kind, plugin(code)).__name__


@each_row("kind", BASES)
def test_a_method_that_is_called_may_be_overridden(kind):
    """Of each kind: every method of the base that the framework calls."""
    module = ModuleType("bare")
    for name in BUILT_INS[kind]:
        found = resolve(kind, name)
        assert "" == unused(kind, type("Mine", (found,), {"__module__": module.__name__}))


def test_a_class_without_a_file_is_let_through():
    names = {"Trainer": resolve("trainer", "trainer"), "__name__": "of_no_file"}
    exec("class Mine(Trainer):\n    def evalute(self):\n        pass", names)  # noqa: S102

    assert "" == unused("trainer", names["Mine"])
