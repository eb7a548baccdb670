"""Commands that try something small before a long run."""

from typing import Annotated

import typer

from flows.commands.calibration import judge_check
from flows.usage import Assignments, Preset


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (trial, judge_check, tune_lr):
        app.command()(command)


def trial(
    assignments: Assignments = None,
    preset: Preset = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the text unmasked.")] = False,
    price: Annotated[
        float | None,
        typer.Option(
            "--price-per-million-tokens", min=0.0, help="Price of a million of the target's tokens."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try one batch and estimate the whole run; changes nothing."""
    from flows.commands.trial import try_batch

    try_batch(assignments or [], preset=preset, price=price, is_revealed=reveal, as_json=as_json)


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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try learning rates on one experience each and suggest one; writes nothing."""
    from flows.commands.tuning import tune_rate

    tune_rate(
        assignments or [],
        preset=preset,
        lowest=lowest,
        highest=highest,
        count=count,
        target=target,
        is_saved=save,
        as_json=as_json,
    )
