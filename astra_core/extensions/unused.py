"""Parts of a plug-in's class that nothing would use, reported before any weights are loaded.

If nothing calls an overridden method, the work in it is silently lost. Whether something calls it
is found from the names that code uses, beginning with what the framework calls and on through the
class's own methods. A name counts as used wherever it occurs, so the check never refuses a method
that may be called after all.
"""

import dis
import inspect
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from types import CodeType, FunctionType, MappingProxyType
from typing import Any

from astra_core.extensions.plugin_class import Plugin

# The methods of each kind of plug-in that the framework itself calls.
_CALLED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "algorithm": frozenset(
            {"flatten_all", "remember", "collate", "step", "parameters", "state", "load_state"}
            | {"needs_with", "check_needs"}
        ),
        "sampler": frozenset(
            {"episodes", "runs", "roll_out", "has_siblings", "refuse_many_failures"}
            | {"remember", "state", "load_state"}
        ),
        "scorer": frozenset({"score", "judge", "version"}),
        "target": frozenset(
            {"digest", "respond", "read", "remembering", "works_on", "vocabulary"}
            | {"account", "accounted", "evaluating", "figures", "spelled"}
        ),
        "reward": frozenset({"assign", "remember", "state", "load_state", "prepare", "needs_with"}),
        "term": frozenset({"values", "remember", "state", "load_state", "prepare", "needs_with"}),
        "trainer": frozenset(
            {"train", "resume", "dry_run", "plan", "harness", "algorithm_for"}
            | {"figures", "state", "load_state"}
        ),
        "optimizer": frozenset({"optimizer"}),
        "schedule": frozenset({"schedule", "metric", "move"}),
        "executor": frozenset({"run", "results", "num_workers", "close"}),
        "sink": frozenset({"check", "write", "written", "finish"}),
    }
)
# Called around a custom trainer's ``train``.
_AROUND_TRAIN = frozenset({"begin", "evaluate", "save", "end", "restore_best"})
# Our own methods that call another one through a function outside of the class.
_REACHED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "train": frozenset({"steps"}),
        "evaluate": frozenset({"examine"}),
        "restore_best": frozenset({"examine"}),
    }
)
# Pairs of methods: the second is useless without the first, and the first without the second.
_PAIRS = (("state", "load_state"), ("load_state", "state"), ("parameters", "state"))
# Names from other systems that are easily written by habit, and our names for them.
_THEIRS: Mapping[str, str] = MappingProxyType(
    {
        "_prepare_batch": "Algorithm.flatten_all and Algorithm.collate",
        "_prepare_trajectories": "Algorithm.flatten_all",
        "_main_loop": "Trainer.steps",
        "_run_train_loop": "Trainer.steps",
        "_run_test_loop": "Trainer.examine",
        "_sample_rollouts": "Sampler.roll_out",
        "_get_log_stats": "remember",
        "_eval_dev": "Trainer.examine",
        "_save_hf": "Trainer.save",
        "eval_epoch": "Trainer.examine",
        "collate_fn": "Algorithm.collate",
        "on_step": "the argument of Trainer.train, or a sink",
    }
)
_OURS = "astra_core."


def unused(kind: str, plugin: type[Any]) -> str:
    """Why a part of a class would never be used, as the rest of a line; empty if all may be.

    Args:
        kind: The kind of plug-in, such as ``trainer``.
        plugin: A class that the user wrote.
    """
    if plugin.__module__.startswith(_OURS):
        return ""
    view = _View(kind, plugin)
    for name in view.overridden:
        if name not in view.reached:
            return (
                f"must not override {name}(), which nothing would call, since {view.blame(name)} "
                f"does not; call it there, or leave {name}() out"
            )
    for given, missing in _PAIRS:
        if given in view.overridden and view.lacks(
            missing, is_built_in_enough=given == "parameters"
        ):
            return f"must override {missing}() beside {given}(), or what it keeps is lost at a kill"
    return view.misspelled() or (_not_built(plugin) if kind == "trainer" else "")


def _not_built(plugin: type[Any]) -> str:
    """Why a trainer cannot be built or trained as the stage and the preset do; empty if it can."""
    if inspect.isgeneratorfunction(plugin.train):
        return "must not yield in train(), which is called and not iterated; yield in steps()"
    parts = dict.fromkeys(("evaluator", "store", "first_graphs", "world"))
    try:
        inspect.signature(plugin).bind("config", "sampler", "algorithm", **parts)
    except TypeError as error:
        return (
            f"must be built from config, sampler, algorithm and {list(parts)}, got: {error}; take "
            "**parts and give them to super().__init__"
        )
    return ""


class _View:
    """The methods of a class, whether the user wrote them, and which of them are reached."""

    def __init__(self, kind: str, plugin: type[Any]) -> None:
        self._kind = kind
        self._plugin = plugin
        own = [cls for cls in plugin.__mro__ if not cls.__module__.startswith((_OURS, "builtins"))]
        self._own = [cls for cls in own if cls.__module__ not in {"abc", "typing"}]
        base = [cls for cls in plugin.__mro__ if cls.__module__.startswith(_OURS)]
        self._base = [cls for cls in base if cls is not Plugin]

    @cached_property
    def given(self) -> set[str]:
        """Every name that the user's classes define."""
        return {name for cls in self._own for name in vars(cls)}

    @cached_property
    def overridden(self) -> list[str]:
        """Our public methods that the user's classes override, although they need not."""
        return sorted(
            name
            for name in self.given
            if not name.startswith("_") and any(_is_hook(vars(cls).get(name)) for cls in self._base)
        )

    @cached_property
    def reached(self) -> set[str]:
        """Every name that may be called, beginning with what the framework calls."""
        # Abstract methods must be defined, even if our code does not call them.
        needed = {name for cls in self._base for name in getattr(cls, "__abstractmethods__", ())}
        concrete = {
            n for cls in self._base for n, own in vars(cls).items() if not _is_abstract(own)
        }
        found = set(_CALLED[self._kind]) | (needed - concrete) | {"__init__"} | self._outside
        if self._kind == "trainer" and "train" in self.given:
            found |= _AROUND_TRAIN
        waiting = list(found)
        while waiting:
            new = set(self._names(waiting.pop())) - found
            found |= new
            waiting += new
        return found

    def blame(self, name: str) -> str:
        """The user's method that replaces ours, which would have called this one."""
        wanted = [name]
        for sought in wanted:
            for cls, caller in self._callers(sought):
                place = next(each for each in self._plugin.__mro__ if caller in vars(each))
                if place is not cls:
                    return f"{place.__name__}.{caller}()"
                wanted += [] if caller in wanted else [caller]
        return self._plugin.__name__

    def _callers(self, name: str) -> Iterator[tuple[type[Any], str]]:
        """Our methods that call this one, by their class."""
        for cls in self._base:
            for caller, own in vars(cls).items():
                if name in {*_asked(own), *_REACHED.get(caller, ())}:
                    yield cls, caller

    def lacks(self, name: str, *, is_built_in_enough: bool) -> bool:
        """Whether the user's classes leave a method as in the base class of its kind."""
        if name in self.given:
            return False
        return not (is_built_in_enough and any(name in vars(cls) for cls in self._base[:-1]))

    def misspelled(self) -> str:
        """A line about a method named almost like ours, or as in another system; or empty."""
        hooks = {n for cls in self._base for n, own in vars(cls).items() if _is_hook(own)}
        hooks = {name for name in hooks if not name.startswith("_")}
        for name in sorted(self.given):
            method = next(vars(cls)[name] for cls in self._own if name in vars(cls))
            if name in hooks or not isinstance(method, FunctionType) or self._is_mentioned(name):
                continue
            if name in _THEIRS:
                return f"must not rely on {name}(), which nothing calls; here it is {_THEIRS[name]}"
            near = get_close_matches(name, hooks - self.given, n=1, cutoff=0.85)
            if near and not name.startswith("_"):
                return f"must name its methods as ours, got {name}(); did you mean {near[0]}()?"
        return ""

    @cached_property
    def _outside(self) -> set[str]:
        """Names used by other code in the user's modules, which may call anything."""
        others: list[Any] = []
        for module in filter(None, {inspect.getmodule(cls) for cls in self._own}):
            for own in vars(module).values():
                if getattr(own, "__module__", "") != module.__name__:
                    continue
                if isinstance(own, FunctionType):
                    others.append(own)
                elif isinstance(own, type) and not _is_plugin(own):
                    others += vars(own).values()
        return {name for own in others for name in _used(own)}

    def _names(self, name: str) -> Iterator[str]:
        """The names that the method of this name uses, and those that it overrides, if it asks."""
        for cls in self._plugin.__mro__:
            if name not in vars(cls):
                continue
            if cls in self._base and name in _REACHED:
                yield from _REACHED[name]
            used = set(_used(vars(cls)[name]))
            if cls not in self._base:
                yield from used
            elif name != "resume":  # a save of another object: no use of our save()
                yield from _asked(vars(cls)[name])
            if not {"super", name} & used:
                return

    def _is_mentioned(self, name: str) -> bool:
        """Whether the files of the user's classes mention it anywhere except in its definition."""
        for cls in self._own:
            try:
                text = inspect.getsource(inspect.getmodule(cls) or cls)
            except (OSError, TypeError):
                return True
            if len(re.findall(rf"(?<!def )\b{name}\b", text)):
                return True
        return False


def _is_hook(own: Any) -> bool:
    return isinstance(own, FunctionType | property | classmethod)


def _is_abstract(own: Any) -> bool:
    return bool(getattr(own, "__isabstractmethod__", False)) or not _is_hook(own)


def _is_plugin(cls: type[Any]) -> bool:
    return any(base.__module__.startswith(_OURS) for base in cls.__mro__)


def _asked(own: Any) -> Iterator[str]:
    """Every attribute of ``self`` that one of our methods uses; others do not matter."""
    for code in _codes(own):
        before = None
        for each in dis.get_instructions(code):
            if before in {"self", "cls"} and each.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
                yield each.argval
            before = _loaded(each)


def _loaded(instruction: dis.Instruction) -> str | None:
    """The variable that an instruction loads; if it loads two at once, the last."""
    if instruction.opname.startswith(("LOAD_FAST", "STORE_FAST_LOAD_FAST", "LOAD_DEREF")):
        names = instruction.argval
        return str(names[-1] if isinstance(names, tuple) else names)
    return None


def _used(own: Any) -> Iterator[str]:
    """Every name in the code of a function, a property or a class method, nested code included."""
    for code in _codes(own):
        yield from code.co_names
        yield from (value for value in code.co_consts if isinstance(value, str))


def _codes(own: Any) -> Iterator[CodeType]:
    """The code of a function, a property or a class method, and all that is nested in it."""
    parts = (own, *(getattr(own, name, None) for name in ("fget", "fset", "__func__")))
    waiting = [part.__code__ for part in parts if hasattr(part, "__code__")]
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [value for value in code.co_consts if isinstance(value, CodeType)]
