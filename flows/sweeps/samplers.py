"""Which settings a sweep tries next: all of a grid, random ones, or those that Optuna suggests.

Each sampler is a function of the axes and the results so far, without state, so that a killed sweep
asks for the same settings again.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.errors.packages import require_package
from astra_core.seeding import derive_key, generator
from flows.sweeps.space import MAX_POINTS, Axis, Setting, read_axes, read_seeds

Found = Mapping[Setting, float | None]
"""The mean success of each setting that was tried; None if its runs failed."""
Sampler = Callable[[Sequence[Axis], int, Found], list[Setting]]
"""Gives the settings to try next from the axes, their total number and the results so far; an
empty list ends the sweep."""

# Settings that Optuna suggests at once: the next ones use their results.
WAVE = 4
_TRIES = 100


def grid(axes: Sequence[Axis], count: int, found: Found) -> list[Setting]:
    """Every combination of the axes' values, the last axis fastest, once.

    Raises ConfigurationError if an axis is a range.
    """
    del count
    for axis in axes:
        if axis.scale != "choice":
            msg = (
                f"{axis.key} must list values for a grid, got a range; list some, or draw from it "
                "with --sampler random --count 10"
            )
            raise ConfigurationError(msg)
    settings = itertools.product(*([axis.assign(v) for v in axis.values] for axis in axes))
    return [setting for setting in dict.fromkeys(settings) if setting not in found]


def random(axes: Sequence[Axis], count: int, found: Found) -> list[Setting]:
    """Settings drawn independently; with a higher ``count`` the same ones and more."""
    drawn: dict[Setting, None] = {}
    for number in range(count + _TRIES):
        rng = generator(derive_key(0, "sweep", number))
        drawn[tuple(axis.assign(_draw(axis, rng)) for axis in axes)] = None
        if len(drawn) == count:
            break
    return [setting for setting in drawn if setting not in found]


def optuna(axes: Sequence[Axis], count: int, found: Found) -> list[Setting]:
    """Settings that Optuna's tree-structured Parzen estimator suggests (arXiv:1907.10902)."""
    wanted = min(count - len(found), WAVE)
    if wanted <= 0:
        return []
    require_package("optuna", subject="--sampler optuna", extra="sweep")
    import optuna as library

    library.logging.set_verbosity(library.logging.ERROR)
    # The first half of the settings is drawn at random, but at most as many as Optuna's default.
    sampler = library.samplers.TPESampler(
        n_startup_trials=min(10, max(count // 2, 2)), constant_liar=True, seed=len(found)
    )
    study = library.create_study(direction="maximize", sampler=sampler)
    space = {axis.key: _distribution(axis) for axis in axes}
    for setting, value in found.items():
        if value is not None:
            study.add_trial(_trial(axes, space, setting, value=value))
    settings: dict[Setting, None] = {}
    for _ in range(_TRIES):
        trial = study.ask(space)
        setting = tuple(axis.assign(trial.params[axis.key]) for axis in axes)
        if setting not in found:
            settings[setting] = None
        if len(settings) == wanted:
            break
    return list(settings)


def _trial(
    axes: Sequence[Axis], space: Mapping[str, Any], setting: Setting, *, value: float
) -> Any:
    import optuna as library

    texts = [text.partition("=")[2] for text in setting]
    params = {
        axis.key: text if axis.scale == "choice" else min(max(float(text), axis.low), axis.high)
        for axis, text in zip(axes, texts, strict=True)
    }
    return library.trial.create_trial(params=params, distributions=dict(space), value=value)


def _distribution(axis: Axis) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if axis.scale == "choice":
        return CategoricalDistribution(axis.values)
    return FloatDistribution(axis.low, axis.high, log=axis.scale == "log")


def _draw(axis: Axis, rng: Any) -> str | float:
    if axis.scale == "choice":
        return axis.values[int(rng.integers(len(axis.values)))]
    if axis.scale == "log":
        return float(math.exp(rng.uniform(math.log(axis.low), math.log(axis.high))))
    return float(rng.uniform(axis.low, axis.high))


SAMPLERS: Mapping[str, Sampler] = {"grid": grid, "random": random, "optuna": optuna}


def sampler_called(name: str) -> Sampler:
    """The sampler with this name. Raises ConfigurationError if there is none."""
    if name not in SAMPLERS:
        msg = f"--sampler must be one of {list(SAMPLERS)}, got '{name}'"
        raise ConfigurationError(msg)
    return SAMPLERS[name]


def read_asked(
    settings: Sequence[str], seeds: str, sampler: str, *, count: int, jobs: int
) -> tuple[tuple[Axis, ...], tuple[int, ...]]:
    """The axes and seeds that a sweep of these options tries.

    Raises ConfigurationError if one of them cannot be used, or there are too many points.
    """
    if count < 1:
        msg = f"--count must be at least 1, got {count}"
        raise ConfigurationError(msg)
    if jobs < 0:
        msg = f"--jobs must be at least 0, got {jobs}; 0 chooses by the machine"
        raise ConfigurationError(msg)
    sampler_called(sampler)
    axes, numbers = read_axes(settings), read_seeds(seeds)
    num_settings = math.prod(len(axis.values) or 1 for axis in axes) if sampler == "grid" else count
    if num_settings * len(numbers) > MAX_POINTS:
        msg = (
            f"a sweep must have at most {MAX_POINTS} points, got {num_settings * len(numbers)}: "
            f"{num_settings} settings under {len(numbers)} seeds; draw some settings with "
            "--sampler random --count 10"
        )
        raise ConfigurationError(msg)
    return axes, numbers
