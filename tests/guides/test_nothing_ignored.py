"""Whatever of a built-in class a user overrides is called in a run, or refused before it begins."""

import importlib
from contextlib import suppress
from inspect import isgeneratorfunction
from types import FunctionType

import pytest

from astra_core.errors import ConfigurationError
from astra_core.registry import BUILT_INS, resolve

BUILT_IN = {
    "algorithm": "dpo",
    "trainer": "trainer",
    "optimizer": "adamw",
    "schedule": "transformers",
    "sampler": "tree",
    "reward": "adversarial",
    "scorer": "phrases",
    "target": "causal_lm",
    "sink": "csv",
    "executor": "local",
}
# `astra trial` and the stage of evaluation ask for these, who has workers elsewhere, hardening, a
# script that has a model of its own, and a loop written by hand.
LATER = {"dry_run", "spelled", "close", "num_workers", "spoken", "of", "optimizer"}


def hooks_of(kind):
    """The public methods of a built-in class and of its bases."""
    found = {}
    for cls in resolve(kind, BUILT_IN[kind]).__mro__:
        if cls.__module__.startswith(("astra_core.", "astra_parts.")):
            found |= {name: own for name, own in vars(cls).items() if name not in found}
    kinds = FunctionType | property | classmethod
    return {
        name: own
        for name, own in found.items()
        if not name.startswith("_") and isinstance(own, kinds)
    }


def code_of(kind, names):
    """A class that notes each of these methods when it is asked for, and does what ours does."""
    module, _, base = BUILT_INS[kind][BUILT_IN[kind]].partition(":")
    lines = [f"from {module} import {base}", "ASKED = set()", f"class Mine({base}):", "    pass"]
    for name, own in ((name, hooks_of(kind)[name]) for name in sorted(names)):
        note = f"        ASKED.add('{name}')"
        if isinstance(own, property):
            lines += ["    @property", f"    def {name}(self):", note]
            lines += [f"        return super().{name}"]
            if own.fset:
                lines += [f"    @{name}.setter", f"    def {name}(self, given):"]
                lines += [f"        {base}.{name}.fset(self, given)"]
            continue
        first = "cls" if isinstance(own, classmethod) else "self"
        lines += ["    @classmethod"] if first == "cls" else []
        lines += [f"    def {name}({first}, *arguments, **named):", note]
        verb = "yield from" if isgeneratorfunction(own) else "return"
        lines += [f"        {verb} super().{name}(*arguments, **named)"]
    return "\n".join(lines)


@pytest.fixture
def overridden(plugin):
    """Of each kind, the methods that may be overridden, and a class that overrides them all."""

    def write(kind):
        pairs = [{"state", "load_state"}]
        alone = [{name} for name in hooks_of(kind) if not {name} & {"state", "load_state"}]
        allowed = set()
        for at, names in enumerate([*alone, *pairs]):
            if not names <= hooks_of(kind).keys():
                continue
            path = plugin(f"one_{kind}_{at}:Mine", code_of(kind, names))
            with suppress(ConfigurationError):
                resolve(kind, path)
                allowed |= names
        return plugin(f"all_{kind}:Mine", code_of(kind, allowed)), allowed

    return write


def test_what_may_be_overridden_is_called_in_a_run_of_the_pipeline(pipeline, overridden):
    own = {kind: overridden(kind) for kind in BUILT_IN}
    named = {kind: {"name": path, "options": {}} for kind, (path, _) in own.items()}
    kinds = ("algorithm", "trainer", "optimizer", "schedule")
    settings = {
        "training": {"training_steps": 2, "eval_every": 1} | {kind: named[kind] for kind in kinds},
        "system": {
            "scorer": {**named["scorer"], "options": {"phrases": ["bad", "worse"]}},
            "target": named["target"],
        },
        "rollouts": {"sampler": {**named["sampler"], "options": {"tree_width": 3}}},
        "reward": named["reward"],
        "tracking": {"sinks": [named["sink"]]},
        "executor": named["executor"],
        "machine": {"prompts_per_shard": 2},
    }
    for keep_runs in (False, True):  # the second finds a run to resume, which has ended
        ran = pipeline(keep_runs=keep_runs, **settings)
        assert 0 == ran.status, ran.said
    asked = {
        kind: importlib.import_module(path.partition(":")[0]).ASKED
        for kind, (path, _) in own.items()
    }

    lost = {kind: sorted(may - asked[kind] - LATER) for kind, (_, may) in own.items()}
    assert {kind: [] for kind in BUILT_IN} == lost
