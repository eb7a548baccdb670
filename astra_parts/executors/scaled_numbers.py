"""Work to test executors with: it needs no torch, so workers load it at once."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra_core.errors import DataError
from astra_core.executor import Work


@dataclass(frozen=True)
class ScaledNumbers(Work):
    """Work that multiplies numbers by the present weight; a negative number is refused.

    Attributes:
        folder: Gets a file each time that the work is prepared.
        key: The name of the work.
    """

    folder: Path
    key: str = "scaled"

    def prepare(self, kept: dict[str, Any]) -> list[float]:
        """The weight, which ``renew`` replaces."""
        kept[self.key] = True
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False):
            return [1.0]

    def renew(self, prepared: list[float], data: bytes) -> None:
        """Another weight."""
        prepared[0] = float(data)

    def do(self, prepared: list[float], shard: int) -> float:
        """The product."""
        if shard < 0:
            msg = f"a shard must not be negative, got {shard}; check its sign"
            raise DataError(msg)
        return prepared[0] * shard
