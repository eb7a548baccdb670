"""Commands about the champion: decide again, roll back, examine again."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from astra_core.errors import ConfigurationError
from flows.commands.chronicle import model_name
from tasks.machine.console import quiet_libraries, say

fresh_seed = partial(typer.Option, min=0, max=2**62)


def promote(
    version: Annotated[
        str | None, typer.Option(metavar="N", help="Make this version the candidate first.")
    ] = None,
) -> None:
    """Decide about the registered candidate again, or about another version."""
    from flows.servers.environment import quiet_run

    if version is not None:
        from tasks.promotion.decision import make_candidate

        quiet_libraries()
        make_candidate(model_name(), version)
    with quiet_run():
        from flows.promotion import promotion

        say(promotion().summary())


def rollback() -> None:
    """Make the previous champion champion again."""
    from tasks.promotion.decision import rollback as roll_back
    from tasks.records.receipt import RECEIPT
    from tasks.report.publish import renew_report

    quiet_libraries()
    found = roll_back(model_name())
    say(found.summary())
    if found.withdrawn_version:
        renew_report(found.model_name, found.withdrawn_version, receipt=RECEIPT)


def reevaluate(
    seed: Annotated[
        int | None, fresh_seed(help="Seed of the fresh prompts; default: today's date.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Take the prompts from a file instead.")] = None,
) -> None:
    """Evaluate the champion on prompts it has never seen."""
    if file is not None and not file.is_file():
        msg = f"--file must name a file of prompts, got {file}; there is none"
        raise ConfigurationError(msg)
    from flows.servers.environment import quiet_run

    with quiet_run():
        from flows.reevaluation import champion_reevaluation

        # Its process has already printed the error.
        champion_reevaluation(seed=seed, file=file, return_state=True).result()
