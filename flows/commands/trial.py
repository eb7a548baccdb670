"""A trial of one batch under params.yaml, or with other values laid over it."""

import math
import sys
from collections.abc import Sequence

from astra_core.errors import ConfigurationError, DataError
from flows.settings import changed_params, planned_params
from tasks.params.schema import Params
from tasks.trials.trial import SECTIONS, run_trial

EARLIER = ("prompts", "validation", "models")
"""The stages whose outputs are read, in their order."""


def try_batch(
    assignments: Sequence[str],
    *,
    preset: str | None = None,
    price: float | None,
    is_revealed: bool,
    as_json: bool,
) -> None:
    """Tries one batch and prints the findings; see ``run_trial``.

    Args:
        assignments: Each ``section.key=value``, which replaces the value in params.yaml.
        preset: Of the folder ``params``, laid over params.yaml before the assignments.
        price: The price of a million of the target's tokens.
        is_revealed: True shows the samples unmasked.
        as_json: True prints one JSON object.

    Raises:
        ConfigurationError: params.yaml, or an assignment, cannot be used.
        DataError: The stages before training must run again under the preset.
    """
    if price is not None and not math.isfinite(price):
        msg = f"--price-per-million-tokens must be a finite number, got {price}; leave it out"
        raise ConfigurationError(msg)
    # A trial changes nothing, so Python must not write compiled files beside a plug-in either.
    sys.dont_write_bytecode = True
    params = params_to_try(assignments, preset)
    run_trial(params, price=price, is_revealed=is_revealed, as_json=as_json)


def params_to_try(assignments: Sequence[str], preset: str | None) -> Params:
    """The parameters of something that is tried on the outputs of the earlier stages.

    Args:
        assignments: Each ``section.key=value``, of sections that no earlier stage reads.
        preset: It may set any section, if the earlier stages have run under it.

    Raises:
        ConfigurationError: An assignment or the preset cannot be used.
        DataError: An earlier stage must run again under the preset.
    """
    if preset is None:
        return changed_params(assignments, sections=SECTIONS)
    from flows.runs.planning import reasons_to_run

    text, params = planned_params(assignments, preset=preset)
    stale = [name for name in reasons_to_run(text, params) if name in EARLIER]
    if stale:
        msg = (
            f"the stages {', '.join(EARLIER)} must have run under --preset {preset}, got "
            f"{', '.join(stale)} of other parameters; 'astra run --preset {preset} --to "
            f"{EARLIER[-1]}' runs them"
        )
        raise DataError(msg)
    return params
