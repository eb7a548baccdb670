"""A range test of the learning rate under params.yaml, or with other values laid over it."""

import sys
from collections.abc import Sequence

from flows.commands.trial import params_to_try
from flows.settings import change_params
from tasks.machine.console import say
from tasks.trials.rate_range import rates_between, run_rate_range


def tune_rate(
    assignments: Sequence[str],
    *,
    preset: str | None = None,
    lowest: float,
    highest: float,
    count: int,
    target: float | None,
    is_saved: bool,
    as_json: bool = False,
) -> None:
    """Tries the rates and prints the outcome; see ``run_rate_range``.

    Args:
        assignments: Each ``section.key=value``, which replaces the value in params.yaml.
        preset: Of the folder ``params``, laid over params.yaml before the assignments.
        lowest: The lowest rate.
        highest: The highest rate.
        count: The number of rates.
        target: Allowed movement, nats per probe.
        is_saved: True writes the suggested rate to params.yaml.
        as_json: True prints one JSON object.

    Raises:
        ConfigurationError: params.yaml, an assignment or the range cannot be used.
    """
    rates = rates_between(lowest, highest, count)
    sys.dont_write_bytecode = True
    params = params_to_try(assignments, preset)
    found = run_rate_range(params, rates, target=target, as_json=as_json)
    if as_json:
        if is_saved and found is not None:
            change_params([f"training.lr={found:g}"])
        return
    if not is_saved or found is None:
        say("nothing was changed")
        return
    for line in change_params([f"training.lr={found:g}"]):
        say(f"params.yaml    {line}")
