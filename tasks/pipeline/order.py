"""The stages in their order, and dvc.yaml as their signatures describe it."""

import importlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import suggestion
from astra_core.paths import is_file, kind_of
from tasks.params.plugins import PLUGINS, plugin_data, plugin_sources
from tasks.params.schema import Params
from tasks.params.seeds import with_root
from tasks.params.targets import MIXTURE
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.stage import Stage, stage_of
from tasks.pipeline.stage_code import code_digest

PIPELINE_FILE = Path("dvc.yaml")
SCRIPT = Path("stage.sh")
"""In a project that has the package installed instead of its source; see ``tasks/stage.sh``."""
HEADER = "# Rendered from the stage signatures in tasks/ by `astra render`; do not edit.\n"
# What `dvc plots show` and `dvc plots diff` draw from a file that a stage declares as a plot.
CURVES = {
    "reports/training_steps.csv": ("train/loss", "train/grad_norm", "eval/attack_success_rate")
}


def stages() -> dict[str, Stage]:
    """Every stage by name, in the order in which they can run; imports no torch.

    Raises ConfigurationError if a stage module is missing, or the stages do not fit together.
    """
    found = {name: find_stage(name) for name in STAGE_NAMES}
    check_order(found)
    return found


def find_stage(name: str) -> Stage:
    """The stage called ``name``; only its own module is imported.

    Raises ConfigurationError if there is no such stage, or its module describes none or several.
    """
    check_name(name)
    return read_stage(f"tasks.stages.{name}")


def check_name(name: str) -> None:
    """Raises ConfigurationError unless there is a stage called ``name``; imports nothing."""
    if name not in STAGE_NAMES:
        hint = suggestion(name, STAGE_NAMES)
        msg = f"unknown stage '{name}'; stages are {list(STAGE_NAMES)}{hint}"
        raise ConfigurationError(msg)


def read_stage(module_name: str) -> Stage:
    """The stage that a module describes; its name is the module's.

    Raises ConfigurationError if the module is missing, or describes none or several.
    """
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise
        msg = f"stage module {module_name} must exist, got none; restore its file"
        raise ConfigurationError(msg) from None
    own = [
        value for value in vars(module).values() if getattr(value, "__module__", "") == module_name
    ]
    found = [described for value in own if (described := stage_of(value)) is not None]
    if len(found) != 1:
        msg = f"{module_name} must hold one function under @stage, got {len(found)}; split it"
        raise ConfigurationError(msg)
    return found[0]


def outside_inputs(stage: Stage, params: Params) -> tuple[Path, ...]:
    """The files named in params.yaml that a stage reads, so that an edit makes it run again.

    They are prompt files, model folders, a calibration, harmless requests, and the code and data
    of plug-ins outside of ``plugins/``.
    """
    # Such a section has the name of the stage that reads its files.
    section = f"{stage.name}."
    named = [path for key, path in outside_files(params).items() if key.startswith(section)]
    if PLUGINS.as_posix() in stage.code:
        record = params.model_dump(mode="json", include=set(stage.params))
        named += [*plugin_sources(record), *plugin_data(record)]
    return tuple(dict.fromkeys(named))


def outside_files(params: Params) -> dict[str, Path]:
    """The files and folders of prompts, models and evaluations that params.yaml names, by key."""
    prompts, models, evaluation = params.prompts, params.models, params.evaluation
    given: dict[str, Any] = {}
    if prompts.source == "file":
        given |= {"prompts.path": prompts.path, "prompts.dev_path": prompts.dev_path}
    if prompts.source != "builtin":
        given["promotion.fresh_path"] = params.promotion.fresh_path
    for name in ("calibration", "benign_prompts"):
        given[f"evaluation.{name}"] = getattr(evaluation, name)
    for role in ("attacker", "target", "reference"):
        model = getattr(models, role)
        if model is not None and model.source == "folder":
            given[f"models.{role}.path"] = model.path
    # The built-in requests are named by a word.
    return {key: path for key, path in given.items() if isinstance(path, Path)}


def _further_keys(params: Params) -> list[str]:
    """Keys of params.yaml that affect the stage ``models`` only for some values of other keys."""
    sources, target = params.models.sources.values(), params.system.target
    keys = ["registration.model_name"] if any(each.source == "version" for each in sources) else []
    # The stage has no model for a target without weights of its own.
    if target.name != "causal_lm":
        # A list has no name in params.yaml, and one without options may be its name alone.
        is_named = target.name != MIXTURE and "options" in target.model_fields_set
        keys.append("system.target.name" if is_named else "system.target")
    return keys


def render(pipeline: dict[str, Stage] | None = None, *, params: Params | None = None) -> str:
    """The text of dvc.yaml.

    Args:
        pipeline: The stages; by default the project's own.
        params: Names files outside of the project; by default there are none.
    """
    import yaml

    pipeline = pipeline or stages()
    is_of_a_file, params = params is not None, params or Params()
    further = {"models": _further_keys(params)}
    written = {path.as_posix() for stage in pipeline.values() for path in stage.plots}
    content: dict[str, Any] = {"stages": {}}
    for name, each in pipeline.items():
        read = [*with_root(each.params), *further.get(name, ())]
        left_out = [key for key in read if is_of_a_file and not _is_given(params, key)]
        read = [key for key in read if key not in left_out]
        content["stages"][name] = _entry(each, outside_inputs(each, params), keys=read)
        if left_out:
            # DVC refuses a key that params.yaml lacks; by another command the stage runs again.
            content["stages"][name]["cmd"] += f"  # by default: {', '.join(left_out)}"
    curves = [
        {column: {"x": "step", "y": {path: column}}}
        for path, columns in CURVES.items()
        if path in written
        for column in columns
    ]
    if curves:
        content["plots"] = curves
    return HEADER + yaml.safe_dump(content, sort_keys=False, width=100)


def watched_by(name: str) -> frozenset[str]:
    """The paths that a stage reads according to dvc.yaml; empty where that cannot be read."""
    import yaml

    try:
        return frozenset(yaml.safe_load(read_pipeline())["stages"][name]["deps"])
    except (yaml.YAMLError, LookupError, TypeError):
        return frozenset()


def read_pipeline(path: Path = PIPELINE_FILE) -> str:
    """The text of dvc.yaml; bytes that are no UTF-8 become a mark, which differs from our text."""
    if not is_file(path):
        msg = f"{path} must be a file, got {kind_of(path)}; run 'astra render'"
        raise ConfigurationError(msg)
    return path.read_text(encoding="utf-8", errors="replace")


def drift(
    path: Path = PIPELINE_FILE,
    *,
    pipeline: dict[str, Stage] | None = None,
    params: Params | None = None,
) -> str | None:
    """The first place where the file differs from ``render()``, in one line; None if they agree."""
    wanted = render(pipeline, params=params).splitlines()
    if not path.is_file():
        return f"{path} must exist, got no such file; run 'astra render'"
    written = read_pipeline(path).splitlines()
    if wanted == written:
        return None
    same = [left == right for left, right in zip(wanted, written, strict=False)]
    line = same.index(False) if False in same else len(same)
    want, got = (
        text[line].strip() if line < len(text) else "its end" for text in (wanted, written)
    )
    return f"{path}:{line + 1} must be '{want}', got '{got}'; run 'astra render'"


def outdated_stages(params: Params) -> Iterator[tuple[str, str]]:
    """Stages whose entry in dvc.yaml is another one than ``render()`` would write, and why."""
    import yaml

    try:
        written = yaml.safe_load(read_pipeline())["stages"]
    except (yaml.YAMLError, LookupError, TypeError):
        written = {}
    for name, entry in yaml.safe_load(render(params=params))["stages"].items():
        if (own := written.get(name)) != entry:
            is_code = own is not None and {**own, "cmd": entry["cmd"]} == entry
            yield name, "the code changed" if is_code else "dvc.yaml follows params.yaml"


def check_order(pipeline: dict[str, Stage]) -> None:
    """Checks that each path is written by one stage, which runs before those that read it."""
    writers: dict[Path, str] = {}
    for stage in pipeline.values():
        for path in stage.deps:
            if path not in writers:
                msg = (
                    f"stage {stage.name} must read what an earlier stage writes, got {path}; "
                    f"written so far are {sorted(map(str, writers))}"
                )
                raise ConfigurationError(msg)
        for path in stage.products:
            if path in writers:
                msg = (
                    f"{path} must have one writer, got {writers[path]} and {stage.name}; rename one"
                )
                raise ConfigurationError(msg)
            writers[path] = stage.name


def _is_given(section: Any, key: str) -> bool:
    """Whether params.yaml names a key; one with options may be its name alone."""
    first, _, rest = key.partition(".")
    given = first in section.model_fields_set
    return given and (not rest or _is_given(getattr(section, first), rest))


def _entry(stage: Stage, outside: Iterable[Path], *, keys: Iterable[str]) -> dict[str, Any]:
    """One stage as DVC reads it.

    Every output is cached: one uncached output would keep DVC from restoring the whole stage from
    its run cache after a parameter is set back. Receipts are left out: they describe the registry
    and not a commit, so a checkout of an earlier lock must not ask for an older receipt.
    """
    command, code = f"sh tasks/stage.sh {stage.name}", stage.code
    if SCRIPT.is_file():
        # The code is not in the project; a change of it is one of the comment.
        command = f"sh {SCRIPT} {stage.name}  # {code_digest(code)[:16]}"
        code = tuple(each for each in code if each == PLUGINS.as_posix())
    entry: dict[str, Any] = {
        "desc": stage.description,
        # Not ``python``: what that means depends on the caller's shell. See the script.
        "cmd": command,
        "params": [*keys],
        "deps": [*code, *(path.as_posix() for path in (*stage.deps, *outside))],
        "outs": [path.as_posix() for path in stage.outs],
        "metrics": [path.as_posix() for path in stage.metrics],
        "plots": [path.as_posix() for path in stage.plots],
    }
    return {key: value for key, value in entry.items() if value}
