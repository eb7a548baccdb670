"""Calls of a plug-in's code: any failure becomes one of our errors, which names the plug-in.

This includes ``sys.exit(0)``, which would end a run as if it had succeeded. Ctrl-C passes through.
"""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Real
from types import TracebackType
from typing import Any, NoReturn, ParamSpec, SupportsFloat, TypeGuard, TypeVar

from astra_core import errors
from astra_core.errors import AstraError, PluginError
from astra_core.errors.exception_text import (
    error_line,
    is_ours,
    note_plugin,
    place_in_plugin,
    shorten,
    shown_text,
)
from astra_core.extensions.plugin_files import spelled_module

_LOG = logging.getLogger(__name__)
_SHOWN = 160  # characters of a plug-in's error; the trace has the rest
P = ParamSpec("P")
Returned = TypeVar("Returned")


def rename_arguments(**ours: str) -> Callable[[Callable[P, Returned]], Callable[P, Returned]]:
    """A decorator: the function's arguments may have these names of another system too."""

    def wrap(function: Callable[P, Returned]) -> Callable[P, Returned]:
        @wraps(function)
        def call(*given: P.args, **parts: P.kwargs) -> Returned:
            for theirs, own in ours.items():
                if theirs in parts:
                    parts[own] = parts.pop(theirs)
            return function(*given, **parts)

        return call

    return wrap


class plugin_call:  # noqa: N801 - used as a context manager alone
    """A context that turns what its body raises into one of our errors, which names the plug-in.

    An ``AstraError`` keeps its class, so that a retry is still possible. An error in our own code
    is a bug and passes through. This is a class because a context manager made from a generator
    cannot turn a ``StopIteration`` into another error.

    Args:
        kind: The kind as in ``params.yaml``, such as ``scorer``.
        plugin: The object, its class, or the name by which it was asked for.
        passes: Errors that the plug-in may raise, which keep their own words.

    Raises PluginError if the plug-in raised, or would have ended the program.
    """

    def __init__(
        self, kind: str, plugin: Any, action: str, *, passes: tuple[type[AstraError], ...] = ()
    ) -> None:
        self._kind = kind
        self._plugin = plugin
        self._action = action
        self._passes: tuple[type[BaseException], ...] = (KeyboardInterrupt, GeneratorExit, *passes)

    def __enter__(self) -> None:
        """Notes which process calls."""
        self._process = os.getpid()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        name = self._plugin if isinstance(self._plugin, str) else path_of(self._plugin)
        if os.getpid() != self._process:
            # A second process would write what the first writes, and remove its drafts.
            self._end_fork(name, error)
        if error is None or isinstance(error, self._passes):
            return
        # Others, such as a stop by a signal, may pass through a plug-in that does not raise them.
        is_own = type(error).__module__ in {"builtins", _module_of(self._plugin)}
        # A GPU's memory that runs out in a plug-in is no fault of it.
        is_memory = type(error).__name__ == "OutOfMemoryError"
        if is_memory or not (isinstance(error, Exception | SystemExit) or is_own):
            return
        is_known = isinstance(error, PluginError) or is_built_in(name)
        if is_known and not isinstance(error, SystemExit):
            return
        attributed = _error_with_subject(error, f"{self._kind} '{name}'", self._action)
        if attributed is not error:
            raise attributed from error

    def _end_fork(self, name: str, error: BaseException | None) -> NoReturn:
        if isinstance(error, SystemExit):
            os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
        words = "%s '%s' forked in %s; the second process was ended, as it did not end itself"
        _LOG.warning(words, self._kind, name, self._action)
        os._exit(1)


def path_of(plugin: Any) -> str:
    """The name of a plug-in or its class in params.yaml: its import path or its file."""
    found = plugin if isinstance(plugin, type) else type(plugin)
    return f"{spelled_module(found.__module__)}:{found.__qualname__}"


def _module_of(plugin: Any) -> str:
    if isinstance(plugin, str):
        return plugin.partition(":")[0]
    return str((plugin if isinstance(plugin, type) else type(plugin)).__module__)


def is_built_in(name: str) -> bool:
    """Whether a name or an import path is a part of the loop or of what comes with it."""
    return ":" not in name or name.startswith(("astra_core.", "astra_parts."))


def _error_with_subject(error: BaseException, subject: str, action: str) -> AstraError:
    note_plugin(subject.partition("'")[2])
    place = place_in_plugin(error)
    where = f" ({place})" if place else ""
    if isinstance(error, SystemExit):
        code = shown_text(error) if isinstance(error.code, str) else error.code
        msg = f"{subject} must not end the program, got sys.exit({code}) in {action}{where}"
        return PluginError(f"{msg}; raise an error instead")
    if isinstance(error, AstraError):
        text = " ".join(shown_text(error).split())
        if is_ours(error) and subject in text:
            return error
        return _class_of(error)(f"{subject} in {action}: {text}{'' if is_ours(error) else where}")
    got = shorten(error_line(error), limit=_SHOWN)
    msg = f"{subject} must not fail in {action}, got {got}{where}; correct it there"
    return PluginError(msg)


def _class_of(error: AstraError) -> type[AstraError]:
    """The nearest class of our own, which takes only a message; a plug-in's class may not."""
    known = [cls for cls in vars(errors).values() if isinstance(cls, type)]
    return next(c for c in type(error).__mro__ if c in known and issubclass(c, AstraError))


def is_number(value: Any) -> TypeGuard[SupportsFloat]:
    """Whether a plug-in's number is one: of Python, of NumPy, or a tensor without axes."""
    if isinstance(value, Real):
        return True
    return hasattr(value, "__float__") and getattr(value, "ndim", None) == 0


def as_float(value: SupportsFloat) -> float:
    """The number, or infinity for one that is too large for a float, such as 10**400."""
    # A tensor with a gradient warns where it is turned into a number.
    plain = value.detach() if hasattr(value, "detach") else value
    try:
        return float(plain)
    except OverflowError:
        return math.inf


def describe(value: Any) -> str:
    """A plug-in's value for a message: a number as it is, anything else, maybe text, by its type.

    >>> describe(float("nan")), describe("you never listen"), describe(None)
    ('nan', 'str', 'None')
    """
    if isinstance(value, int) and math.isinf(as_float(value)):
        return "a number beyond 1e308"
    return str(value) if value is None or is_number(value) else type(value).__name__


def refuse(kind: str, plugin: Any, rule: str, *, got: str) -> NoReturn:
    """Raises an error that a plug-in gave something other than its kind must give.

    Raises:
        PluginError: Always.
    """
    msg = f"{kind} '{path_of(plugin)}' must give {rule}, got {got}; correct it there"
    raise PluginError(msg)


def plugin_figures(kind: str, plugin: Any, graphs: Sequence[Any]) -> dict[str, float]:
    """The figures of a reward, a sampler or an algorithm on an experience that it has noted.

    Raises PluginError if it failed, or gave something else; only an algorithm owes figures.
    """
    with plugin_call(kind, plugin, "remember"):
        figures = plugin.remember(graphs)
    if figures is None and kind != "algorithm":
        return {}
    return figures_of(kind, plugin, figures, action="remember")


def figures_of(kind: str, plugin: Any, given: Any, *, action: str) -> dict[str, float]:
    """Figures by name, as plain numbers; one need not be finite."""
    if not isinstance(given, Mapping):
        refuse(kind, plugin, f"figures by name from {action}", got=describe(given))
    for name, value in given.items():
        if not (isinstance(name, str) and is_number(value)):
            refuse(
                kind, plugin, f"a number by name from {action}", got=f"{describe(value)} for {name}"
            )
    return {name: float(value) for name, value in given.items()}
