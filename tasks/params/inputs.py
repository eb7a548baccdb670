"""Files outside of the pipeline that params.yaml names: they must exist, and no stage makes them.

A stage that read what a later one writes would have to run before and after it, and DVC refuses
every command on such a project.
"""

import os
from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.paths import LOST, found_at, is_file, kind_of
from tasks.params.plugins import plugin_data, plugin_sources
from tasks.params.schema import Params
from tasks.pipeline.order import outside_files, stages

# How else to come by a file that is not there.
_WAYS_OUT = {
    "prompts.path": "check the path",
    "prompts.dev_path": "check the path",
    "evaluation.calibration": "'astra judge-check' writes one",
    "evaluation.benign_prompts": "builtin has 63",
}


def check_inputs(params: Params) -> None:
    """Checks that the files read from outside of the pipeline exist, and no stage makes them."""
    given = _inputs(params)
    for key, path in given.items():
        # One that cannot be looked up at all would raise below.
        if kind_of(path) in LOST:
            msg = f"{key} must be a path that can exist, got {found_at(path)}; check it"
            raise ConfigurationError(msg)
    made = {path: stage.name for stage in stages().values() for path in stage.products}
    for key, path in given.items():
        for product, stage in made.items():
            if not _overlap(path, product):
                continue
            msg = (
                f"{key} must lie outside of what the pipeline makes, got '{path}', and stage "
                f"{stage} makes {product}; copy what you want to start from, for example to my/, "
                f"and name the copy{_other_way(key)}"
            )
            raise ConfigurationError(msg)
    for key, path in given.items():
        _check_existence(key, path)


def _other_way(key: str) -> str:
    """The other way to name an attacker: by its registered version, which no stage makes."""
    role = key.removesuffix(".path")
    return f", or set {role}.source to version" if role.startswith("models.") else ""


def _inputs(params: Params) -> dict[str, Path]:
    """The paths outside of the pipeline that are read, by their keys."""
    given, resume = outside_files(params), params.training.checkpoint.resume
    if resume not in {"auto", "never"}:
        given["training.checkpoint.resume"] = Path(resume)
    record = params.model_dump(mode="json")
    given |= {f"plug-in code {path}": path for path in plugin_sources(record)}
    return given | {f"a plug-in's data {path}": path for path in plugin_data(record)}


def _overlap(path: Path, product: Path) -> bool:
    """Whether one path is inside the other, as they are written or with links followed."""
    # Both are compared: DVC may have put links to its cache where a stage wrote files.
    for left, right in (
        (Path(os.path.normpath(path.absolute())), product.absolute()),
        (path.resolve(), product.resolve()),
    ):
        if left.is_relative_to(right) or right.is_relative_to(left):
            return True
    return False


def _check_existence(key: str, path: Path) -> None:
    """Checks that there is what a key needs; code and data of plug-ins have been found already."""
    if key.startswith("models."):
        if not is_file(path / "config.json"):
            msg = (
                f"{key} must name a Hugging Face folder with a config.json, "
                f"got {found_at(path)}; check the path"
            )
            raise ConfigurationError(msg)
    elif key in _WAYS_OUT and not is_file(path):
        msg = f"{key} must name a file, got {found_at(path)}; {_WAYS_OUT[key]}"
        raise ConfigurationError(msg)
    # Whether it holds a checkpoint matters only to a run that has none of its own.
    elif key.startswith("training.") and kind_of(path) not in {"a folder", "nothing there"}:
        msg = f"{key} must name a folder, got {found_at(path)}; name another"
        raise ConfigurationError(msg)
