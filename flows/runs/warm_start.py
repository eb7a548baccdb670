"""Makes a run's attacker begin from a version of the registry."""

from dataclasses import replace

from astra_core.errors import ConfigurationError
from astra_core.errors.excerpt import excerpt
from flows.runs.preparation import usable_params
from flows.runs.requests import RunRequest
from tasks.machine.console import say
from tasks.params.overlay import laid_over
from tasks.tracking.lineage.parents import version_number
from tasks.tracking.registry.versions import CHAMPION


def begin_from(wanted: str | int, request: RunRequest) -> RunRequest:
    """The request with the values by which its attacker begins from a version, after a line.

    Args:
        wanted: A number or an alias of registration.model_name.
        request: The request without the warm start.

    Raises:
        ConfigurationError: There is no such version, or params.yaml cannot be used.
        TrackingError: The registry cannot be read.
    """
    begun, line = begun_from(wanted, request)
    say(line)
    return begun


def begun_from(wanted: str | int, request: RunRequest) -> tuple[RunRequest, str]:
    """What ``begin_from`` gives, and its line.

    DVC sees params.yaml with these values but not the registry, so an alias is replaced by its
    present number. Without a champion, as before the first promotion, the request stays the same.
    """
    with laid_over(request.values):
        params = usable_params()
    name, text = params.registration.model_name, str(wanted)
    number = version_number(name, text)
    if number is not None:
        values = {"source": "version", "version": number}
        pairs = tuple((f"models.attacker.{key}", value) for key, value in values.items())
        begun = replace(request, overrides=(*request.overrides, *pairs))
        return begun, f"{'warm start':<13}from {name} version {number}"
    if text != CHAMPION:
        msg = (
            f"warm start must name a version of '{name}' or an alias, got {excerpt(text)}, which "
            "the registry does not have; 'astra status' shows the aliases"
        )
        raise ConfigurationError(msg)
    base = params.models.attacker.source
    line = f"{'warm start':<13}there is no champion yet: begins from models.attacker, {base}"
    return request, line
