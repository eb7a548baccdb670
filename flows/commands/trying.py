"""Commands that try something small before a long run: ``astra trial`` and ``astra tune-lr``."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import ConfigurationError, DataError
from flows.usage import AsJsonObject, Assignments, Preset, Reveal
from tasks.machine.console import say

if TYPE_CHECKING:
    from tasks.params.schema import Params

EARLIER = ("prompts", "validation", "models")
"""The stages whose outputs are read, in their order."""


def trial(
    assignments: Assignments = None,
    preset: Preset = None,
    reveal: Reveal = False,
    price: Annotated[
        float | None,
        typer.Option(
            "--price-per-million-tokens", min=0.0, help="Price of a million of the target's tokens."
        ),
    ] = None,
    as_json: AsJsonObject = False,
) -> None:
    """Try one batch and estimate the whole run; changes nothing."""
    import math

    from tasks.trials.trial import run_trial

    if price is not None and not math.isfinite(price):
        msg = f"--price-per-million-tokens must be a finite number, got {price}; leave it out"
        raise ConfigurationError(msg)
    params = _params_to_try(assignments or [], preset)
    run_trial(params, price=price, is_revealed=reveal, as_json=as_json)


def tune_lr(
    assignments: Assignments = None,
    preset: Preset = None,
    lowest: Annotated[float, typer.Option(help="Rate to begin with.")] = 1e-5,
    highest: Annotated[float, typer.Option(help="Rate to end with.")] = 3e-3,
    count: Annotated[int, typer.Option(max=100, help="How many rates.")] = 6,
    target: Annotated[
        float | None,
        typer.Option("--target-nats", min=1e-6, help="Allowed movement, nats per probe."),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write the suggested rate to params.yaml.")
    ] = False,
    as_json: AsJsonObject = False,
) -> None:
    """Try learning rates on one experience each and suggest one; writes nothing."""
    from flows.settings import change_params
    from tasks.trials.rate_range import rates_between, run_rate_range

    rates = rates_between(lowest, highest, count)
    params = _params_to_try(assignments or [], preset)
    found = run_rate_range(params, rates, target=target, as_json=as_json)
    lines = change_params([f"training.lr={found:g}"]) if save and found is not None else []
    if as_json:
        return
    for line in lines:
        say(f"params.yaml    {line}")
    if not lines:
        say("nothing was changed")


def _params_to_try(assignments: Sequence[str], preset: str | None) -> "Params":
    """The parameters of something that is tried on the outputs of the earlier stages."""
    from flows.settings import as_if, changed_params
    from tasks.trials.trial import SECTIONS

    # A trial changes nothing, so Python must not write compiled files beside a plug-in either.
    sys.dont_write_bytecode = True
    if preset is None:
        return changed_params(assignments, sections=SECTIONS)
    from flows.status import changed_stages
    from tasks.params.schema import read_params

    with as_if(assignments, preset=preset):
        params, stale = read_params(), [name for name in changed_stages() if name in EARLIER]
    if stale:
        msg = (
            f"the stages {', '.join(EARLIER)} must have run under --preset {preset}, got "
            f"{', '.join(stale)} of other parameters; 'astra run --preset {preset} --to "
            f"{EARLIER[-1]}' runs them"
        )
        raise DataError(msg)
    return params
