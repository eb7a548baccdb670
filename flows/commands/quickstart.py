"""``astra quickstart``: params.yaml for prompts and a target of one's own, and a first trial."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astra_core.errors import ConfigurationError
from tasks.machine.console import libraries_to, quiet_libraries, say

if TYPE_CHECKING:
    from tasks.params.schema import Params
    from tasks.sources.files import FileRow
    from tasks.trials.file_check import FileCheck

_CATEGORIES = ("category", "semanticcategory", "functionalcategory", "type")
# Of a file that is hardly long enough: each split has about as much.
_SHARE = 0.3


def quickstart(
    prompts: Annotated[Path, typer.Option(help="A file: json, jsonl, csv, txt, yaml or parquet.")],
    target: Annotated[
        str, typer.Option(metavar="URL|FOLDER", help="A server's address up to /v1, or a model.")
    ],
    model: Annotated[
        str | None, typer.Option(help="The target's name at its server; a URL needs it.")
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="The column with the prompts; found if left out.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another value for params.yaml."),
    ] = None,
) -> None:
    """Write params.yaml for prompts and a target of yours, and try one batch."""
    from flows.commands.running import BEFORE, say_changes
    from flows.settings import assignments_of, change_params

    quiet_libraries()
    preset, aim = _aim_at(target, model)
    own, given = assignments_of({**aim, **_columns(prompts, column)}), assignments or []
    values = [*own, *_sizes(prompts, [*own, *given], preset), *given]
    last = {value.partition("=")[0]: value for value in values}
    say_changes(change_params([*last.values()], preset=preset, before=BEFORE))
    for words in (("run", "--to", "models"), ("trial",)):
        say(f"astra {' '.join(words)}")
        done = subprocess.run([sys.executable, "-m", "flows.cli", *words], check=False)  # noqa: S603 - ours
        if done.returncode:
            raise typer.Exit(done.returncode)
    say("params.yaml is written; 'astra run' runs it")


def _aim_at(target: str, model: str | None) -> tuple[str, dict[str, Any]]:
    """The preset for this kind of target, and the values that name it, by dotted key."""
    from tasks.params.templates import has_template

    if "://" not in target:
        if not Path(target).is_dir():
            msg = f"--target must be a URL or a folder with a model, got {target}; there is none"
            raise ConfigurationError(msg)
        folder = Path(target)
        values = {"models.target.path": target, **_sampling(folder)}
        if not has_template(folder):
            values["system.target.options.format"] = "separator"
        return "local_chat", values
    if model is None:
        msg = f"--target {target} must come with --model, got none; its /v1/models lists the names"
        raise ConfigurationError(msg)
    options = "system.target.options"
    named = {f"{options}.base_url": target, f"{options}.model": model}
    return "endpoint", {"models.target.source": "builtin", "models.target.path": None, **named}


def _sampling(folder: Path) -> dict[str, float | int]:
    """How the model's makers sample its replies, where its folder says so."""
    from tasks.params.templates import read_object

    own = read_object(folder / "generation_config.json")
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
    numbers = {name: own.get(name) for name in names} if own.get("do_sample") else {}
    return {f"system.response.{name}": said for name, said in numbers.items() if said is not None}


def _columns(prompts: Path, column: str | None) -> dict[str, Any]:
    """The file and its columns, by the names that such files have; what a former one had goes."""
    from tasks.params.schema import Params

    row, text = _first_row(prompts, column)
    found = [name for name in row.metadata if name.lower() in _CATEGORIES]
    values = {"source": "file", "path": str(prompts), "text_column": text, "dev_path": None}
    values |= {"metadata_columns": "all", "goal_column": None}
    values["category_column"] = found[0] if found else None
    defaults = Params()
    former: dict[str, Any] = {
        "prompts.dev_fraction": defaults.prompts.dev_fraction,
        "prompts.test_fraction": defaults.prompts.test_fraction,
        "validation.min_prompts": defaults.validation.min_prompts,
        "validation.languages": [],
    }
    return former | {f"prompts.{name}": value for name, value in values.items()}


def _first_row(prompts: Path, column: str | None) -> tuple["FileRow", str]:
    """The first row, and the name under which it has its text."""
    from tasks.sources.columns import USUAL_NAMES, Columns, MissingColumnError
    from tasks.sources.files import read_rows

    name = column or USUAL_NAMES[0]
    try:
        row = next(read_rows(prompts, Columns(name, "all")), None)
    except MissingColumnError as error:
        own = {} if column else {known.lower(): known for known in reversed(error.columns)}
        found = next((own[usual] for usual in USUAL_NAMES if usual in own), None)
        if found is not None:
            return _first_row(prompts, found)
        msg = f"{str(error).rpartition('; ')[0]}; name it with --column"
        raise ConfigurationError(msg) from error
    if row is None:
        msg = f"{prompts} must hold prompts, got none; check how it was written"
        raise ConfigurationError(msg)
    return row, name


def _sizes(prompts: Path, values: list[str], preset: str) -> list[str]:
    """Sizes with which a short file passes the gate and a second duel has prompts; none if it does.

    Raises ConfigurationError if most rows are of no use: they would be too few for another reason.
    """
    found, params = _check(prompts, values, preset)
    shares: list[str] = []
    fewest = params.validation.min_prompts
    if min(found.splits.values()) < fewest:
        if 2 * sum(found.splits.values()) < found.num_rows:
            told = next(found.lines()).partition(": ")[2]
            msg = f"{prompts} must have rows that can be used, got {told}; {found.gate}"
            raise ConfigurationError(msg)
        shares = [f"prompts.{split}_fraction={_SHARE}" for split in ("dev", "test")]
        found, _ = _check(prompts, [*values, *shares], preset)
        shares.append(f"validation.min_prompts={max(1, min(fewest, *found.splits.values()))}")
    say(next(found.lines()))
    if shares:
        say(f"warning        {found.exam[0]}: the gate hardly promotes; bring more prompts")
    test = found.splits["test"]
    if test - params.evaluation.num_prompts < params.promotion.min_prompts <= test // 3:
        # A duel with a champion takes prompts that the evaluation leaves out.
        shares.append(f"evaluation.num_prompts={test - test // 3}")
    return shares


def _check(prompts: Path, values: list[str], preset: str) -> tuple["FileCheck", "Params"]:
    """How the first two stages share the file out, and with which parameters."""
    from flows.settings import planned_params
    from tasks.machine.environment import set_environment
    from tasks.trials.file_check import check_file

    _, params = planned_params(values, preset=preset)
    set_environment(params)
    with libraries_to(Path(os.devnull)):
        found = check_file(params, prompts, params.prompts.dev_path)
    return found, params
