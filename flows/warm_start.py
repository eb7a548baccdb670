"""Where the next attacker begins: params.yaml pointed at a version of the registry before a run."""

from astra_core.errors import ConfigurationError
from astra_core.errors.excerpt import excerpt
from flows.settings import change_params
from tasks.machine.console import say
from tasks.params.schema import Params
from tasks.tracking.parents import version_number
from tasks.tracking.versions import CHAMPION


def begin_from(wanted: str | int, params: Params) -> str | None:
    """The number of the version that params.yaml now takes the attacker from, as ``--set`` would.

    DVC sees params.yaml and not the registry, so an alias is written as the number that it means
    now. Without a champion, as before the first promotion, params.yaml stays as it is and None is
    returned.

    Args:
        wanted: A number or an alias of registration.model_name.
        params: As params.yaml says now, checked.

    Raises:
        ConfigurationError: There is no such version, or params.yaml cannot be used.
        TrackingError: The registry cannot be read.
    """
    name, text = params.registration.model_name, str(wanted)
    number = version_number(name, text)
    if number is not None:
        keys = ("source=version", f"version={number}")
        for line in change_params([f"models.attacker.{key}" for key in keys]):
            say(f"params.yaml    {line}")
        say(f"{'warm start':<13}from {name} version {number}")
        return number
    if text != CHAMPION:
        msg = (
            f"warm start must name a version of '{name}' or an alias, got {excerpt(text)}, which "
            "the registry does not have; 'astra status' shows the aliases"
        )
        raise ConfigurationError(msg)
    base = params.models.attacker.source
    say(f"{'warm start':<13}there is no champion yet: begins from models.attacker, {base}")
    return None
