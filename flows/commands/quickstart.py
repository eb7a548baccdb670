"""``astra quickstart``: params.yaml for prompts and a target of one's own, and a first trial."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from astra_core.errors import ConfigurationError

if TYPE_CHECKING:
    from tasks.params.schema import Params
    from tasks.sources.files import FileRow

# Names that published sets of prompts give to the column, in the order in which they are tried.
_TEXTS = ("text", "prompt", "goal", "behavior", "question", "instruction", "request", "query")
_CATEGORIES = ("category", "semanticcategory", "functionalcategory", "type")
# Of splits by chance, so that each has enough of a file that is hardly long enough.
_SHARE, _ROOM = 0.3, 1.2


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(quickstart)


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
    from flows.commands.running import BEFORE
    from flows.settings import change_params
    from tasks.machine.console import quiet_libraries, say

    quiet_libraries()
    preset, values = _aim_at(target, model)
    values += [*_columns(prompts, column), *(assignments or [])]
    values += _sizes(prompts, values, preset)
    for line in change_params(values, preset=preset, before=BEFORE):
        say(f"params.yaml    {line}")
    say(f"undo           cp {BEFORE} params.yaml")
    for words in (("run", "--to", "models"), ("trial",)):
        say(f"astra {' '.join(words)}")
        done = subprocess.run([sys.executable, "-m", "flows.cli", *words], check=False)  # noqa: S603 - ours
        if done.returncode:
            raise typer.Exit(done.returncode)


def _aim_at(target: str, model: str | None) -> tuple[str, list[str]]:
    """The preset for this kind of target, and what names it."""
    if "://" not in target:
        if not Path(target).is_dir():
            msg = f"--target must be a URL or a folder with a model, got {target}; there is none"
            raise ConfigurationError(msg)
        return "local_chat", [f"models.target.path={target}"]
    if model is None:
        msg = f"--target {target} must come with --model, got none; its /v1/models lists the names"
        raise ConfigurationError(msg)
    options = "system.target.options"
    return "endpoint", [f"{options}.base_url={target}", f"{options}.model={model}"]


def _columns(prompts: Path, column: str | None) -> Iterator[str]:
    """The file and its columns, by the names that such files have."""
    row, text = _first_row(prompts, column)
    yield from ("prompts.source=file", f"prompts.path={prompts}", f"prompts.text_column={text}")
    found = [name for name in row.metadata if name.lower() in _CATEGORIES]
    if found:
        yield f"prompts.category_column={found[0]}"


def _first_row(prompts: Path, column: str | None) -> tuple["FileRow", str]:
    """The first row, and the name under which it has its text."""
    from tasks.sources.columns import Columns
    from tasks.sources.files import read_rows

    wanted = [column] if column else [form for name in _TEXTS for form in (name, name.title())]
    problem = None
    for name in wanted:
        try:
            return next(read_rows(prompts, Columns(name, "all"))), name
        except ConfigurationError as error:
            problem = problem or error
            if "the column" not in str(error):
                raise
        except StopIteration:
            break
    told = str(problem or f"{prompts} must hold prompts, got none").partition(";")[0]
    msg = f"{told}; name it with --column"
    raise ConfigurationError(msg) from problem


def _sizes(prompts: Path, values: list[str], preset: str) -> list[str]:
    """Shares of the splits with which a short file passes the gate; none for one that does so."""
    from flows.settings import planned_params
    from tasks.machine.console import say

    _, params = planned_params(values, preset=preset)
    found, splits = _split(params, prompts)
    if min(splits.values()) >= params.validation.min_prompts:
        say(found)
        return []
    shares = [f"prompts.{split}_fraction={_SHARE}" for split in ("dev", "test")]
    usable = sum(splits.values())
    fewest = min(params.validation.min_prompts, int(_SHARE * usable / _ROOM))
    shares += [f"validation.min_prompts={max(fewest, 1)}"]
    found, _ = _split(planned_params([*values, *shares], preset=preset)[1], prompts)
    say(found)
    return shares


def _split(params: "Params", prompts: Path) -> tuple[str, dict[str, int]]:
    """How the first two stages would share the file out, as a line and by split."""
    from tasks.trials.file_check import check_file

    found = check_file(params, prompts)
    return next(found.lines()), found.splits
