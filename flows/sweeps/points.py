"""A point of a sweep: one setting under one seed, in a workspace below ``sweeps/points``.

A point's key is the digest of everything that decides its result. So two sweeps share points, and a
point whose code or data changed is another point.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.files import file_digest, folder_digest, record_digest
from flows.settings import planned_params
from flows.sweeps.space import Setting
from tasks.params.plugins import is_source
from tasks.params.schema import Params
from tasks.pipeline.order import outside_inputs, stages
from tasks.pipeline.workspace import LOCAL, fill_workspace

SWEEPS = Path("sweeps")
POINTS = SWEEPS / "points"
LOCKS = SWEEPS / "locks"
LAST = "evaluation"
"""The stage that ends a point: only the best one is registered."""
# Sections that do not affect the result: how a run is recorded, and how the gate decides.
_OTHER = {"flow", "hardening", "promotion", "registration", "tracking"}
_CODE = ("astra_core", "astra_parts", "plugins", "tasks")


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep.

    ``turns``: its stages, each with the lock that it shares with points of the same beginning.
    """

    setting: Setting
    seed: int
    key: str
    params: Params
    text: str
    turns: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its name for people."""
        return " ".join((*self.setting, f"seed={self.seed}"))

    @property
    def folder(self) -> Path:
        """Its workspace while it runs."""
        return POINTS / self.key[:16]

    @property
    def result(self) -> Path:
        """The file of its figures."""
        return self.folder.with_suffix(".json")

    @property
    def log(self) -> Path:
        """The log of its stages' output."""
        return self.folder.with_suffix(".log")

    def make_workspace(self) -> None:
        """Creates its workspace, unless a killed try left a complete one."""
        # Written last.
        if (self.folder / LOCAL).is_file():
            return
        self.remove_workspace()
        fill_workspace(self.folder, self.text, self.params)

    def remove_workspace(self) -> None:
        """Removes its workspace; one that a kill leaves half removed is no complete one."""
        (self.folder / LOCAL).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def make_points(settings: Sequence[Setting], seeds: Sequence[int]) -> list[Point]:
    """The points of every setting and seed, in this order; nothing is written.

    Raises ConfigurationError if a setting is not one of params.yaml, or seeds would change nothing.
    """
    code = code_digest()
    return [
        _point(setting, seed, code=code, is_one=len(seeds) == 1)
        for setting in settings
        for seed in seeds
    ]


def code_digest() -> str:
    """The digest of the code that runs in a workspace."""
    kept = [Path(name) for name in _CODE if Path(name).is_dir()]
    return record_digest([folder_digest(path, keep=is_source) for path in kept])


def _point(setting: Setting, seed: int, *, code: str, is_one: bool) -> Point:
    text, params = planned_params([*setting, f"seed={seed}"])
    if not is_one and params.training_seed != seed:
        msg = (
            f"training_seed must be null in a sweep over seeds, got {params.training_seed}, "
            "under which all of them are the same run; set it to null in params.yaml"
        )
        raise ConfigurationError(msg)
    inputs = outside_digests(params)
    dump = params.model_dump(mode="json")
    tracked = {name: value for name, value in dump.items() if name not in _OTHER}
    return Point(
        setting=setting,
        seed=seed,
        key=record_digest([tracked, code, inputs]),
        params=params,
        text=text,
        turns=tuple(_turns(dump, code, inputs)),
    )


def _turns(
    dump: Mapping[str, Any], code: str, inputs: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Each stage with a lock, named by everything that decides its result and earlier ones."""
    key = code
    for name, stage in stages().items():
        sections = {section: dump[section] for section in stage.params}
        key = record_digest([key, name, sections, inputs[name]])
        yield f"{name}={(LOCKS / key[:16]).absolute()}"
        if name == LAST:
            return


def outside_digests(params: Params) -> dict[str, dict[str, str]]:
    """The digests of files that params.yaml names, by the stage that reads them and by path."""
    return {
        name: {path.as_posix(): _digest(path) for path in outside_inputs(stage, params)}
        for name, stage in stages().items()
    }


def _digest(path: Path) -> str:
    """The digest of a file's bytes, or of a folder's names, sizes and times: weights are large."""
    if not path.is_dir():
        return file_digest(path) if path.is_file() else ""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    stats = [(file.relative_to(path).as_posix(), file.stat()) for file in files]
    return record_digest([[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats])
