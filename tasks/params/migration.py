"""Keys and names of earlier versions of params.yaml, and what took their place."""

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from astra_core.errors import ConfigurationError

RENAMED: Mapping[str, str] = {
    "models.builtin.max_positions": "models.builtin.context_tokens",
    "models.builtin.vocabulary_size": "models.builtin.vocab_size",
    "system.num_threads": "machine.num_threads",
}
"""Keys whose value means the same elsewhere."""
GONE: Mapping[str, str] = {
    "models.builtin.training_steps": "models.builtin.num_dialogues says how long it learns",
    "promotion.confidence": "promotion.family_error bounds the gate's errors",
    "promotion.num_resamples": "the gate takes a t-test",
    "promotion.max_nonword_probe_rate": "promotion.max_nonword_gain bounds what training adds",
    "promotion.min_unique_probes": "min_unique_probes_ratio is a share of the untrained one's",
    "system.target.options.receive_after_kill": "calls under way are made again",
    "training.algorithm.options.scale_by_spread": "options.scale is none where this was false",
    "tracking.traces": "'astra examples' and the report show the worst conversations",
}
"""Keys without a successor of the same meaning, and where to look."""
_VOTES = {"votes", "temperature", "seed", "max_new_tokens"}
_READS = "it reads the likelihood of each answer now"
_VALUES: Mapping[str, Mapping[str, str | bool]] = {
    "system.compile": {"auto": False, "on": True, "off": False},
    "training.compile": {"on": True, "off": False},
    "training.algorithm.name": {"DPO": "dpo", "GRPO": "grpo", "PPO": "ppo", "RLOO": "rloo"},
    "training.optimizer.name": {"AdamW": "adamw", "Adam": "adam", "SGD": "sgd"},
    "training.schedule.name": {"ReduceLROnPlateau": "plateau"},
}


def refuse_earlier(record: Mapping[str, Any]) -> None:
    """Raises ConfigurationError unless params.yaml is of this version."""
    lines = [
        f"{line}; 'astra migrate' rewrites the file"
        for line in migrate(copy.deepcopy(dict(record)))
    ]
    if lines:
        raise ConfigurationError("\n".join(lines))


def migrate(record: MutableMapping[str, Any]) -> Iterator[str]:
    """Rewrites the record of an earlier version in place; a line for each change."""
    for old, new in RENAMED.items():
        owner, last = _owner(record, old)
        if owner is not None:
            above, name = new.rsplit(".", 1)
            _section(record, above).setdefault(name, owner.pop(last))
            yield f"{old} is a key of an earlier version, now {new}"
    for old, why in GONE.items():
        owner, last = _owner(record, old)
        if owner is not None:
            yield f"{old} is a key of an earlier version, now gone (was {owner.pop(last)}): {why}"
    for key, values in _VALUES.items():
        owner, last = _owner(record, key)
        was = None if owner is None else owner[last]
        if owner is not None and isinstance(was, str) and was in values:
            yield f"{key} is {str(values[was]).lower()} now, no longer {was}"
            owner[last] = values[was]
    for options in _options_of(record, "llm_judge"):
        for name in sorted(_VOTES & set(options)):
            yield f"{name} is an option of an earlier llm_judge (was {options.pop(name)}): {_READS}"
    owner, last = _owner(record, "training.algorithm.name")
    if owner is not None and owner[last] == "ipo":
        owner[last] = "dpo"
        _section(owner, "options")["loss"] = "ipo"
        yield "training.algorithm.name is dpo with loss: ipo now, no longer ipo"


def _owner(record: Any, key: str) -> tuple[MutableMapping[str, Any] | None, str]:
    """The mapping that has the key, and the key's last part; None where none has it."""
    *above, last = key.split(".")
    for part in above:
        record = record.get(part) if isinstance(record, MutableMapping) else None
    has_it = isinstance(record, MutableMapping) and last in record
    return (record if has_it else None), last


def _options_of(record: Any, name: str) -> Iterator[MutableMapping[str, Any]]:
    """The options of every choice of this name, at whatever depth."""
    if isinstance(record, MutableMapping):
        options = record.get("options")
        if record.get("name") == name and isinstance(options, MutableMapping):
            yield options
        record = [*record.values()]
    for value in record if isinstance(record, list) else ():
        yield from _options_of(value, name)


def _section(record: MutableMapping[str, Any], key: str) -> MutableMapping[str, Any]:
    for part in key.split("."):
        if not isinstance(record.get(part), MutableMapping):
            record[part] = {}
        record = record[part]
    return record
