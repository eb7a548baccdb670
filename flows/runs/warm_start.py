"""Makes a run's attacker begin from a version of the registry."""

from collections.abc import Sequence

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from flows.settings import planned_params
from tasks.machine.console import say
from tasks.params.schema import Params
from tasks.tracking.lineage.parents import version_number
from tasks.tracking.registry.versions import CHAMPION


def begin_from(
    wanted: str | int,
    assignments: Sequence[str],
    *,
    preset: str | None = None,
    is_quiet: bool = False,
) -> list[str]:
    """The assignments of ``warm_start`` for params.yaml with these values, after its line."""
    _, params = planned_params(assignments, preset=preset)
    found, line = warm_start(wanted, params)
    if not is_quiet:
        say(line)
    return found


def warm_start(wanted: str | int, params: Params) -> tuple[list[str], str]:
    """The assignments by which an attacker begins from a version, and a line that says so.

    DVC sees params.yaml but not the registry, so an alias is replaced by its present number.
    Without a champion, as before the first promotion, nothing is assigned.

    Raises ConfigurationError if there is no such version, TrackingError if the registry cannot be
    read.
    """
    name, text = params.registration.model_name, str(wanted)
    number = version_number(name, text)
    if number is not None:
        values = ["models.attacker.source=version", f'models.attacker.version="{number}"']
        return values, f"{'warm start':<13}from {name} version {number}"
    if text != CHAMPION:
        msg = (
            f"warm start must name a version of '{name}' or an alias, got {excerpt(text)}, which "
            "the registry does not have; 'astra status' shows the aliases"
        )
        raise ConfigurationError(msg)
    base = params.models.attacker.source
    return [], f"{'warm start':<13}there is no champion yet: begins from models.attacker, {base}"
