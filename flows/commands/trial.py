"""A trial of one batch under params.yaml, or with other values laid over it."""

import math
import sys
from collections.abc import Sequence

from astra_core.errors import ConfigurationError
from flows.settings import changed_params
from tasks.reporting.trial import SECTIONS, run_trial


def try_batch(
    assignments: Sequence[str], *, price: float | None, is_revealed: bool, as_json: bool
) -> None:
    """Tries one batch and prints the findings; see ``run_trial``.

    Args:
        assignments: Each ``section.key=value``, which replaces the value in params.yaml.
        price: The price of a million of the target's tokens.
        is_revealed: True shows the samples unmasked.
        as_json: True prints one JSON object.

    Raises:
        ConfigurationError: params.yaml, or an assignment, cannot be used.
    """
    if price is not None and not math.isfinite(price):
        msg = f"--price-per-million-tokens must be a finite number, got {price}; leave it out"
        raise ConfigurationError(msg)
    # A trial changes nothing, so Python must not write compiled files beside a plug-in either.
    sys.dont_write_bytecode = True
    params = changed_params(assignments, sections=SECTIONS)
    run_trial(params, price=price, is_revealed=is_revealed, as_json=as_json)
