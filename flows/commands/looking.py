"""Commands about the project as it is: its parameters, this machine, its conversations."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from astra_core.errors import ConfigurationError, GateError
from flows.usage import AsJson, AsJsonObject, Assignments, Preset, Reveal
from tasks.machine.console import complain, libraries_to, quiet_libraries, say, say_found


def check() -> None:
    """Check all of params.yaml; loads no weights."""
    _run_tasks("--check")


def params(
    section: Annotated[
        str | None, typer.Argument(help="Such as training, or training.kl; without: what is set.")
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Of every section.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """List the keys of params.yaml with values, defaults and meanings."""
    from tasks.params.overlay import overlaid
    from tasks.params.reference import keys_of
    from tasks.params.schema import Params, read_params, read_record

    quiet_libraries()
    try:
        known, record = read_params(), overlaid(read_record())
    except ConfigurationError as error:  # a mistake in the file is why one looks here
        complain(f"warning: these are defaults, for {str(error).splitlines()[0]}")
        known, record, show_all = Params(), {}, True
    keys = keys_of(known, record, section or "")
    if section and not f"{keys[0].name}.".startswith(f"{section}."):
        complain(f"warning: '{section}' has no line of its own; this is what leads to it")
    shown = keys if show_all or section else [key for key in keys if key.is_given]
    if as_json:
        say(json.dumps([asdict(key) for key in shown], indent=2))
        return
    for key in shown:
        say(key.line())


def migrate() -> None:
    """Rewrite a params.yaml of an earlier version for this one."""
    from flows.commands.beginning import renew
    from flows.commands.running import BEFORE, say_changes
    from flows.settings import migrate_params

    say_changes(migrate_params(before=BEFORE))
    for name in renew():
        say(f"{name} is the installed version's now")
    _run_tasks("--check")


def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Fix what it can.")] = False,
    as_json: AsJson = False,
) -> None:
    """List problems of this machine that would stop a run."""
    _run_tasks("--doctor", *(["--fix"] if fix else []), *(["--json"] if as_json else []))


def render(check: Annotated[bool, typer.Option(help="Only compare.")] = False) -> None:
    """Write dvc.yaml from the stages' signatures."""
    _run_tasks("--render", *(["--check"] if check else []))


def _run_tasks(*arguments: str) -> None:
    from tasks.__main__ import main as run_tasks

    raise typer.Exit(run_tasks(arguments))


def status(as_json: AsJsonObject = False) -> None:
    """Show which stages would run and who is champion."""
    from flows.status import status_lines, status_record

    if as_json:
        say(json.dumps(status_record(), indent=2))
        return
    for line in status_lines():
        say(line)


def validate(
    file: Annotated[
        Path, typer.Argument(help="Prompts: json, jsonl, csv, tsv, txt, yaml or parquet.")
    ],
    dev: Annotated[
        Path | None, typer.Option(help="Prompts of the dev split, to find leaks.")
    ] = None,
    assignments: Assignments = None,
    preset: Preset = None,
    as_json: AsJsonObject = False,
) -> None:
    """Check a file of prompts line by line, as the first two stages would; changes nothing."""
    from flows.settings import as_if
    from tasks.machine.environment import set_environment
    from tasks.params.schema import read_params

    # A column can be named of a file alone, and params.yaml may still have the built-in prompts.
    named = ["prompts.source=file", f"prompts.path={json.dumps(str(file))}"] if assignments else []
    with as_if([*(assignments or []), *named], preset=preset):
        params = read_params()
        set_environment(params)
        quiet_libraries()
        from tasks.trials.file_check import check_file

        with libraries_to(Path(os.devnull)):
            found = check_file(params, file, dev)
    say_found(found.record(), found.lines(), as_json=as_json)
    if found.gate:
        msg = f"{found.gate}; see the lines above"
        raise GateError(msg)


def examples(
    reveal: Reveal = False,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many turns.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the turns of the last evaluation that scored highest, masked."""
    from tasks.figures.examples import examples_record, read_examples

    if as_json:
        found = examples_record(count=count, is_revealed=reveal)
        say(json.dumps(found, indent=2, ensure_ascii=False))
        return
    say(read_examples(count=count, is_revealed=reveal))
