"""``astra harden``: the target trained on findings, and measured again."""

from dataclasses import asdict
from typing import Annotated

import typer

from flows.usage import AsJson
from tasks.machine.console import say_found


def harden(
    rounds: Annotated[
        int | None, typer.Option(min=1, max=100, help="Most rounds; default: hardening.rounds.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option(help="Train a fresh attacker on each hardened target.")
    ] = True,
    register: Annotated[bool, typer.Option(help="Register each hardened target.")] = True,
    as_json: AsJson = False,
) -> None:
    """Train the target on the findings against it, then attack and measure it again, in rounds."""
    from flows.servers.environment import quiet_run

    with quiet_run():
        from flows.hardening import PAGE, hardening
        from tasks.records.reports import nan_as_null

        found = hardening(rounds, fresh=fresh, versions=register)
    lines = PAGE.read_text(encoding="utf-8").rstrip().splitlines()
    say_found(nan_as_null(asdict(found)), lines, as_json=as_json)
