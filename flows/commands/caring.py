"""``astra gc``: what can be removed, and its removal."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astra_core.errors import ConfigurationError
from flows.usage import AsJsonObject
from tasks.machine.console import quiet_libraries, say

if TYPE_CHECKING:
    from tasks.pipeline.cache_leftovers import CacheLeftovers
    from tasks.tracking.database.leftovers import Leftover


_MOST_DAYS = 36_500  # of a date that can be reckoned with


@dataclass(frozen=True, slots=True)
class _Found:
    """What can be removed, by where it is kept."""

    folders: "list[Leftover]"
    cache: "CacheLeftovers"

    @property
    def num_bytes(self) -> int:
        """The size of everything."""
        return sum(each.num_bytes for each in self.folders) + self.cache.num_bytes

    def lines(self) -> list[str]:
        """The lines for a person."""
        return [*(each.line() for each in self.folders), self.cache.line()]

    def record(self) -> dict[str, Any]:
        """The findings as JSON."""
        return {
            "num_bytes": self.num_bytes,
            "folders": [each.record() for each in self.folders],
            "cache": self.cache.record(),
        }

    def remove(self) -> int:
        """The number of bytes freed on the disk, after everything is removed."""
        from flows.runs.turns import in_turn
        from tasks.pipeline.reproduction import changes
        from tasks.tracking.database.leftovers import remove

        with in_turn(waits=False):
            if Path(".dvc").is_dir():
                changes()  # takes no turn, but refuses beside the stage of a `dvc repro`
            remove(self.folders)
            self.cache.remove()
        return self.num_bytes


def _find(days: float) -> _Found:
    from tasks.figures.baselines import KEPT
    from tasks.figures.crossing import TARGETS
    from tasks.params.schema import read_params
    from tasks.pipeline.cache_leftovers import cache_leftovers
    from tasks.tracking.database.leftovers import leftovers
    from tasks.tracking.lineage.logged import digests_of_versions

    return _Found(
        leftovers(read_params().registration.model_name, KEPT, TARGETS, min_days=days),
        cache_leftovers(digests_of_versions(), min_days=days),
    )


def gc(
    yes: Annotated[bool, typer.Option("--yes", help="Remove it.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list, as without --yes.")
    ] = False,
    days: Annotated[
        float, typer.Option(min=0.0, help="Keep what was written in the last days.")
    ] = 14.0,
    as_json: AsJsonObject = False,
) -> None:
    """List checkpoints and cached results that nothing needs; --yes removes them."""
    if yes and dry_run:
        msg = "astra gc must either list or remove, got both --dry-run and --yes; leave one out"
        raise ConfigurationError(msg)
    if not days <= _MOST_DAYS:  # not a number is not either
        msg = f"--days must lie in 0 to {_MOST_DAYS:,}, got {days:g}; a year is 365"
        raise ConfigurationError(msg)
    quiet_libraries()
    found = _find(days)
    if as_json:
        freed = found.remove() if yes else 0
        say(json.dumps({"removed": yes, "freed": freed, **found.record()}, indent=2))
        return
    for line in found.lines():
        say(line)
    if not (found.folders or found.cache.objects):
        say("nothing to remove")
    elif yes:
        say(f"removed {found.remove() / 2**20:.1f} MiB")
    else:
        say(f"would remove {found.num_bytes / 2**20:.1f} MiB; --yes does")
