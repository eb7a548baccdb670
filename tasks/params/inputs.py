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
from tasks.pipeline.order import stages

# The files that an evaluation reads, and where one comes from.
_MADE_BY = {"calibration": "'astra judge-check' writes one", "benign_prompts": "builtin has 63"}


def check_inputs(params: Params) -> None:
    """Checks that the files read from outside of the pipeline exist, and no stage makes them."""
    _check_names(params)
    made = {path: stage.name for stage in stages().values() for path in stage.products}
    for key, path in _inputs(params).items():
        for product, stage in made.items():
            if not _overlap(path, product):
                continue
            msg = (
                f"{key} must lie outside of what the pipeline makes, got '{path}', and stage "
                f"{stage} makes {product}; copy what you want to start from, for example to my/, "
                f"and name the copy{_other_way(key)}"
            )
            raise ConfigurationError(msg)
    _check_existence(params)


def _other_way(key: str) -> str:
    """The other way to name an attacker: by its registered version, which no stage makes."""
    role = key.removesuffix(".path")
    return f", or set {role}.source to version" if role.startswith("models.") else ""


def _check_names(params: Params) -> None:
    """Checks that every path can be looked up at all; one that cannot would raise below."""
    for key, path in _inputs(params).items():
        if kind_of(path) in LOST:
            msg = f"{key} must be a path that can exist, got {found_at(path)}; check it"
            raise ConfigurationError(msg)


def _inputs(params: Params) -> dict[str, Path]:
    """The paths outside of the pipeline that are read, by their keys."""
    prompts, resume = params.prompts, params.training.checkpoint.resume
    given: dict[str, Path | None] = {}
    if prompts.source == "file":
        given |= {"prompts.path": prompts.path, "prompts.dev_path": prompts.dev_path}
    if prompts.source != "builtin":
        given["promotion.fresh_path"] = params.promotion.fresh_path
    for role in ("attacker", "target", "reference"):
        model = getattr(params.models, role)
        if model is not None and model.source == "folder":
            given[f"models.{role}.path"] = model.path
    for name in _MADE_BY:
        own = getattr(params.evaluation, name)
        given[f"evaluation.{name}"] = None if own == "builtin" else own
    if resume not in {"auto", "never"}:
        given["training.checkpoint.resume"] = Path(resume)
    record = params.model_dump(mode="json")
    given |= {f"plug-in code {path}": path for path in plugin_sources(record)}
    given |= {f"a plug-in's data {path}": path for path in plugin_data(record)}
    return {key: path for key, path in given.items() if path is not None}


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


def _check_existence(params: Params) -> None:
    for key in ("path", "dev_path"):
        path = getattr(params.prompts, key)
        if params.prompts.source == "file" and path is not None and not is_file(path):
            msg = f"prompts.{key} must name a file, got {found_at(path)}; check the path"
            raise ConfigurationError(msg)
    given = _inputs(params)
    for key, way_out in _MADE_BY.items():
        path = given.get(f"evaluation.{key}")
        if path is not None and not is_file(path):
            msg = f"evaluation.{key} must name a file, got {found_at(path)}; {way_out}"
            raise ConfigurationError(msg)
    for role in ("attacker", "target", "reference"):
        model = getattr(params.models, role)
        if model is None or model.source != "folder":
            continue
        if not is_file(model.path / "config.json"):
            msg = (
                f"models.{role}.path must name a Hugging Face folder with a config.json, "
                f"got {found_at(model.path)}; check the path"
            )
            raise ConfigurationError(msg)
    resume = params.training.checkpoint.resume
    # Whether it holds a checkpoint matters only to a run that has none of its own.
    if kind_of(resume) not in {"a folder", "nothing there"}:
        msg = f"training.checkpoint.resume must name a folder, got {found_at(resume)}; name another"
        raise ConfigurationError(msg)
