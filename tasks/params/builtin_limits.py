"""Limits of the built-in model and the built-in prompts.

They are not in the sections themselves, because the shipped model belongs to one state of the code
of ``tasks/builtin``.
"""

from astra_core.errors import ConfigurationError
from tasks.params.schema import Params
from tasks.params.targets import has_weights

# A machine without an accelerator trains this in hours rather than weeks; memory bounds the rest.
_MOST = {
    "vocab_size": 65_536,
    "hidden_size": 4_096,
    "num_layers": 64,
    "num_heads": 256,
    "intermediate_size": 16_384,
    "context_tokens": 65_536,
    "batch_size": 65_536,
    "num_quarrels": 10_000_000,
    "num_dialogues": 10_000_000,
}
# The grammar can make some hundred thousand; asked for more, it would search for ever.
_MOST_PROMPTS = 1_000_000


def check_builtin(params: Params) -> None:
    """Raises ConfigurationError unless the built-in model and prompts can be made as asked."""
    if params.prompts.source == "builtin":
        check_openers("prompts.num_builtin", params.prompts.num_builtin)
        if params.promotion.fresh_path is None:
            # A duel makes twice as many as it examines: known ones are taken out.
            check_openers("promotion.num_prompts", params.promotion.num_prompts, surplus=2)
    config = params.models.builtin
    for key, most in _MOST.items():
        if getattr(config, key) > most:
            _refuse(f"models.builtin.{key}", f"at most {most}", getattr(config, key))
    # Rotary positions turn pairs of a head's dimensions.
    if config.hidden_size % (2 * config.num_heads):
        rule = f"a multiple of twice num_heads = {config.num_heads}"
        _refuse("models.builtin.hidden_size", rule, config.hidden_size)
    speakers = {"probe": params.models.attacker}
    if has_weights(params.system.target):
        speakers["response"] = params.models.target
    for name, model in speakers.items():
        longest = getattr(params.system, name).max_new_tokens
        if model.source == "builtin" and config.context_tokens <= longest:
            rule = f"above system.{name}.max_new_tokens = {longest}"
            _refuse("models.builtin.context_tokens", rule, config.context_tokens)


def check_openers(key: str, number: int, *, surplus: int = 1) -> None:
    """Checks that the grammar can make as many openers, each ``surplus`` times."""
    if number > _MOST_PROMPTS // surplus:
        _refuse(key, f"at most {_MOST_PROMPTS // surplus}", number)


def _refuse(key: str, rule: str, value: int) -> None:
    msg = f"{key} must be {rule}, got {value}; see 'astra params {key}'"
    raise ConfigurationError(msg)
