"""What ``system.target`` names: one target, or each of a list."""

import re

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import Found, find

MIXTURE = "mixture"


def targets_of(choice: Choice) -> dict[str, Found]:
    """Each target, by its place in params.yaml.

    Raises ConfigurationError, which says which of a list, if one is unknown or an option is wrong.
    """
    try:
        found = find("target", choice)
    except ConfigurationError as error:
        # A list has no options of its own in params.yaml, the same written out has.
        is_list = [*choice.options] == ["targets"]
        place = "system.target" if is_list else r"system.target.options\1"
        msg = re.sub(rf"target '{MIXTURE}' options(\.targets)?", place, str(error))
        raise ConfigurationError(msg) from None
    if found.name != MIXTURE:
        return {"system.target": found}
    parts = {}
    for number, own in enumerate(found.options.targets):
        place = f"system.target.{number}"
        try:
            parts[place] = find("target", own)
        except ConfigurationError as error:
            msg = f"{place}: {error}"
            raise ConfigurationError(msg) from None
    return parts


def has_weights(choice: Choice) -> bool:
    """Whether a target is made from the weights of ``models.target``."""
    return any(own.plugin.has_weights for own in targets_of(choice).values())
