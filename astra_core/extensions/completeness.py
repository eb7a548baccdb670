"""What a plug-in's class leaves out and would be missed late: at a resume, or after the weights.

Checked when the class is found, before anything is loaded.
"""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_OURS = ("astra_core.", "astra_parts.")
# By what a class overrides: what it must override too. A resume asks for both.
_OTHER_HALF: Mapping[str, str] = MappingProxyType(
    {"state": "load_state", "load_state": "state", "parameters": "state"}
)
# What the training stage and the preset give a trainer by name.
_PARTS = ("evaluator", "store", "first_graphs", "world")


def find_omission(kind: str, plugin: type[Any]) -> str:
    """What a class must do and does not, as the rest of a line; empty if nothing is missing.

    ``kind``: the kind of plug-in, such as ``trainer``.
    """
    for given, other in _OTHER_HALF.items():
        if _is_overridden(plugin, given) and not _keeps(plugin, other, given):
            return f"must override {other}() beside {given}(), or what it keeps is lost at a kill"
    return _find_trainer_fault(plugin) if kind == "trainer" else ""


def _find_trainer_fault(plugin: type[Any]) -> str:
    """Why the stage could not build or train it."""
    if inspect.isgeneratorfunction(plugin.train):
        return "must not yield in train(), which is called and not iterated; yield in steps()"
    try:
        inspect.signature(plugin).bind("config", "sampler", "algorithm", **dict.fromkeys(_PARTS))
    except TypeError as error:
        return (
            f"must be built from config, sampler, algorithm and {list(_PARTS)}, got: {error}; take "
            "**parts and give them to super().__init__"
        )
    return ""


def _is_overridden(plugin: type[Any], name: str) -> bool:
    """Whether a user's class has its own in place of ours."""
    places = _places(plugin, name)
    return len(places) > 1 and not places[0].__module__.startswith(_OURS)


def _keeps(plugin: type[Any], other: str, given: str) -> bool:
    """Whether the other half is the user's, too; weights may be stored by a built-in's state."""
    is_stored = given == "parameters" and len(_places(plugin, other)) > 1
    return is_stored or _is_overridden(plugin, other)


def _places(plugin: type[Any], name: str) -> list[type[Any]]:
    """The classes that define it; the last is the base of the plug-in's kind."""
    return [cls for cls in plugin.__mro__ if name in vars(cls)]
