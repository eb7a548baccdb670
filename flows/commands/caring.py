"""``astra gc``: what can be removed, and its removal."""

import json
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(gc)


def gc(
    yes: Annotated[bool, typer.Option("--yes", help="Remove them.")] = False,
    days: Annotated[
        float, typer.Option(min=0.0, help="Keep what was written in the last days.")
    ] = 14.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List checkpoints in runs/ that no champion, previous or candidate needs; --yes removes."""
    from tasks.machine.console import quiet_libraries, say
    from tasks.params.schema import read_params
    from tasks.tracking.leftovers import leftovers, remove

    quiet_libraries()
    found = leftovers(read_params().registration.model_name, min_days=days)
    if as_json:
        if yes:
            remove(found)
        folders = [each.record() for each in found]
        say(json.dumps({"removed": yes, "folders": folders}, indent=2))
        return
    for each in found:
        say(each.line())
    size = f"{len(found)} folders, {sum(each.num_bytes for each in found) / 2**20:.1f} MiB"
    if yes:
        remove(found)
        say(f"removed {size}")
        return
    say(f"would remove {size}; --yes does" if found else "nothing to remove")
