"""The base of every plug-in's class: options may be left out where there are defaults.

A class is called as ``Class(options, **parts)``, by the pipeline and in a script. Without options
it has those of its ``Options`` section; a class whose constructor takes none is built without.
What it leaves out and would be missed late, at a resume or after the weights, is found with the
class, before anything is loaded.
"""

from abc import ABC, ABCMeta
from collections.abc import Mapping
from inspect import Parameter, isgeneratorfunction, signature
from types import MappingProxyType
from typing import Any

from astra_core.settings.sections import Section

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)
_OURS = ("astra_core.", "astra_parts.")
# By what a class overrides: what it must override too. A resume asks for both.
_OTHER_HALF: Mapping[str, str] = MappingProxyType(
    {"state": "load_state", "load_state": "state", "parameters": "state"}
)
# What the training stage and the preset give a trainer by name.
_PARTS = ("evaluator", "store", "first_graphs", "world")


class _PluginType(ABCMeta):
    """Fills in omitted options, and leaves out options for a class that takes none."""

    def __call__(cls, *arguments: Any, **parts: Any) -> Any:
        first = _first_parameter(cls)
        if not _takes_options(first, parts):
            are_left = len(arguments) == 1 and _are_defaults(arguments[0])
            built = super().__call__(*(() if are_left else arguments), **parts)
            if not hasattr(built, "options"):
                built.options = default_options(cls)
            return built
        if not arguments and "options" not in parts and _needs_options(first):
            arguments = (default_options(cls),)
        return super().__call__(*arguments, **parts)


class Plugin(ABC, metaclass=_PluginType):
    """The base of each kind of plug-in that has options of its own."""

    class Options(Section):
        """No options."""

    def __init__(self, options: Section | None = None) -> None:
        self.options = default_options(type(self)) if options is None else options


def default_options(plugin: type[Any]) -> Section:
    """A plug-in's options if none are given.

    Raises ConfigurationError if one of them has no default.
    """
    options: type[Section] = plugin.Options
    return options.read({}, where=f"{plugin.__name__}.Options")


def _first_parameter(plugin: type[Any]) -> Parameter | None:
    """The first positional parameter of a class's constructor after ``self``, if it has one."""
    _, *taken = signature(plugin.__init__).parameters.values()
    first = taken[0] if taken else None
    return first if first and (first.kind in _BY_PLACE or first.name == "options") else None


def _takes_options(first: Parameter | None, parts: dict[str, Any]) -> bool:
    """Whether a constructor takes a positional argument."""
    return first is not None and (first.name == "options" or first.name not in parts)


def _needs_options(first: Parameter | None) -> bool:
    """Whether a constructor cannot be called without options; its own default is left alone."""
    if first is None or first.kind is Parameter.VAR_POSITIONAL:
        return False
    return first.name == "options" or first.default is Parameter.empty


def _are_defaults(options: Any) -> bool:
    """Whether these are options with all values at their defaults."""
    fields = type(options).model_fields if isinstance(options, Section) else None
    return fields is not None and all(
        getattr(options, name) == field.get_default(call_default_factory=True)
        for name, field in fields.items()
    )


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
    if isgeneratorfunction(plugin.train):
        return "must not yield in train(), which is called and not iterated; yield in steps()"
    try:
        signature(plugin).bind("config", "sampler", "algorithm", **dict.fromkeys(_PARTS))
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
