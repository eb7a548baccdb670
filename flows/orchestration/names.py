"""Names of flow runs, which say what a run does, so that a list of runs is readable.

Prefect asks for a name when a run begins, also if a schedule or a form gave the parameters.
"""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prefect.runtime import flow_run

from astra_core.errors import AstraError
from astra_core.errors.exception_text import shorten
from flows.settings import assignments_of, planned_params

MAX_CHARACTERS = 120
_PLAIN = re.compile(r"[A-Za-z0-9_.:/+-]{1,40}")


def scheduled_day() -> int:
    """The day of the scheduled start as 20261121; today if the run was not scheduled."""
    start = flow_run.scheduled_start_time or datetime.now(UTC)
    return int(start.strftime("%Y%m%d"))


def training_name() -> str:
    """A name such as ``dpo seed 20261123, from champion, with training.lr=0.0001``."""
    return describe_training(flow_run.parameters)


def describe_training(parameters: dict[str, Any], *, day: int | None = None) -> str:
    """The name of a training by the parameters of its flow.

    ``parameters``: the flow's parameters; missing ones have their defaults.
    """
    seed, overrides = parameters.get("seed"), parameters.get("overrides") or {}
    seed = (day or scheduled_day()) if seed == "date" else seed
    parts = [_steps(parameters), _what(seed, overrides)]
    if parameters.get("warm_start") is not None:
        parts.append(f"from {_plain(parameters['warm_start'])}")
    if overrides:
        told = (f"{_plain(key)}={_plain(value)}" for key, value in overrides.items())
        parts.append(f"with {', '.join(told)}")
    if parameters.get("force"):
        parts.append("forced")
    return shorten(", ".join(filter(None, parts)), limit=MAX_CHARACTERS)


def reevaluation_name() -> str:
    """A name such as ``champion on fresh prompts, seed 20261123``."""
    parameters = flow_run.parameters
    file, seed = parameters.get("file"), parameters.get("seed")
    if file is not None:
        return f"champion on prompts of {_plain(Path(str(file)).name)}"
    return f"champion on fresh prompts, seed {scheduled_day() if seed is None else seed}"


def _steps(parameters: dict[str, Any]) -> str:
    """``only training``, ``from rollouts to training``, or nothing if all steps run."""
    if parameters.get("only"):
        return f"only {_plain(parameters['only'])}"
    words = [
        f"{word} {_plain(parameters[name])}"
        for name, word in (("start", "from step"), ("end", "to step"))
        if parameters.get(name)
    ]
    return " ".join(words)


def _plain(value: Any) -> str:
    """A number, a name or a path unchanged; anything else is replaced: it could quote an attack."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else "..."


def _what(seed: int | None, overrides: dict[str, Any]) -> str:
    """Algorithm and seed; without a readable params.yaml none, as the run itself reports that."""
    values = {**overrides, **({} if seed is None else {"training_seed": seed})}
    try:
        _, params = planned_params(assignments_of(values))
    except (AstraError, TypeError, ValueError):
        return "training"
    return f"{params.training.algorithm.name} seed {params.training_seed}"
