"""The columns and sizes that prompts will have, and what target and judges cannot do without."""

from typing import Any

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import Found, find
from astra_core.rollout.prompt import columns_in
from astra_core.settings.sizes import refuse_many_texts
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import Params
from tasks.params.targets import targets_of


def known_columns(prompts: PromptsConfiguration) -> frozenset[str] | None:
    """The columns of the first prompt; None where only a stage can read it, as on the hub."""
    drawn = frozenset(prompts.drawn_columns)
    if prompts.source == "builtin":
        return drawn | {"category"}
    if prompts.source == "hub" or prompts.path is None:
        return None
    from tasks.sources.files import read_rows
    from tasks.sources.rows import columns_of

    first = next(read_rows(prompts.path, columns_of(prompts)), None)
    return drawn | frozenset(first.metadata if first else ())


def check_columns(params: Params) -> None:
    """Checks that the prompts have what the system prompt and the judge of secrets read."""
    asked = {
        f"{place}.options.system_prompt": _columns_told(own)
        for place, own in targets_of(params.system.target).items()
    }
    for name, other in params.evaluation.transfer.items():
        own = _columns_told(find("target", other.target_of(params.system.target)))
        own -= other.columns.keys()
        asked[f"evaluation.transfer.{name}.options.system_prompt"] = own
    asked |= _secrets("system.scorer", params.system.scorer)
    asked |= _secrets("evaluation.second_judge", params.evaluation.second_judge)
    # Reading a file takes a while, so it waits for a setting that asks.
    known = known_columns(params.prompts) if any(asked.values()) else None
    for key, columns in asked.items():
        missing = sorted(columns - known) if known is not None else []
        if missing:
            msg = (
                f"{key} must name columns of the prompts, got '{missing[0]}' besides "
                f"{sorted(known or ())}; correct it, add the column to the file, or let "
                "prompts.drawn_columns draw it"
            )
            raise ConfigurationError(msg)


def _columns_told(target: Found) -> frozenset[str]:
    """The columns that a target's system prompt names."""
    told = getattr(target.options, "system_prompt", None)
    return columns_in(told or "")


def _secrets(key: str, judge: Choice | None) -> dict[str, frozenset[str]]:
    """The column that each judge of secrets reads, by its key; parts of an ensemble too."""
    if judge is None or judge.name not in {"secret", "ensemble"}:
        return {}
    options: Any = find("scorer", judge).options
    if judge.name == "secret":
        return {f"{key}.options.column": frozenset({options.column})}
    found: dict[str, frozenset[str]] = {}
    for name, part in options.judges.items():
        found |= _secrets(f"{key}.options.judges.{name}.judge", part.judge)
    return found


def most_replies(options: Any) -> int:
    """Replies to a probe at most, by the options of a sampler."""
    most: int | None = getattr(options, "max_responses", None)
    return most or int(getattr(options, "num_responses", 1))


def check_sizes(params: Params) -> None:
    """Raises ConfigurationError unless trees and evaluations can be held."""
    rollouts, evaluation = params.rollouts, params.evaluation
    # How many rows a file has is not known yet.
    most = params.prompts.num_builtin if params.prompts.source == "builtin" else 1
    examined = min(most, max(evaluation.num_prompts, evaluation.num_training_prompts))
    refuse_many_texts(
        "evaluation",
        examined,
        (evaluation.num_rollouts,) + (1,) * (evaluation.depth - 1),
        num_responses=evaluation.num_responses,
    )
    options: Any = find("sampler", rollouts.sampler).options
    depth = getattr(options, "tree_depth", None)
    if depth is None:
        return
    for subject, prompts in {
        "rollouts": min(most, rollouts.num_prompts),
        "training": params.training.num_episodes_per_experience,
    }.items():
        refuse_many_texts(
            subject,
            prompts * rollouts.runs_per_prompt,
            (getattr(options, "tree_width", 1),) * depth,
            num_responses=most_replies(options),
            refills=getattr(options, "refills", 0),
        )
