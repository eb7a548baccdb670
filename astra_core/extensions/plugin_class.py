"""The base of every plug-in's class: options may be left out where there are defaults.

A class is called as ``Class(options, **parts)``, by the pipeline and in a script. Without options
it has those of its ``Options`` section; a class whose constructor takes none is built without.
"""

from abc import ABC, ABCMeta
from inspect import Parameter, signature
from typing import Any

from astra_core.settings.sections import Section

_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


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
