"""``astra findings``: the archive of attacks that succeeded."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from astra_core.errors import ConfigurationError
from flows.commands.chronicle import model_name
from flows.usage import AsJson, Assignments, Preset, Reveal
from tasks.machine.console import complain, quiet_libraries, say, say_found

if TYPE_CHECKING:
    from tasks.findings.archive import ArchivedFinding
    from tasks.findings.labels import FindingLabel
    from tasks.findings.listing import Detail
    from tasks.findings.replay import Replayer

LABEL = "label"
_CHOOSING = ("category", "min_score", "version", "target")
_ASKING = ("against", "assignments", "preset")
_WRITING = ("export", "to", "detail")
_SHOWING = ("reveal", "as_json")
_TAKES = {
    LABEL: ("words", "by"),
    "--minimise": ("minimise", "calls", *_ASKING, *_SHOWING),
    "ID": ("words", *_SHOWING),
    "--as-suite": ("as_suite", *_CHOOSING, *_ASKING, *_WRITING),
    "--export": (*_CHOOSING, *_WRITING),
    "as a list": ("count", *_CHOOSING, *_SHOWING),
}
"""The parameters of each thing that the command does; of several it does the first."""


def findings(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID | label ID confirmed|false_positive]", help="One of them."),
    ] = None,
    *,
    category: Annotated[str | None, typer.Option(help="Of this category.")] = None,
    min_score: Annotated[float, typer.Option(min=0.0, max=1.0, help="Of this score or more.")] = 0,
    version: Annotated[
        str | None, typer.Option(help="Of this registered version, and of its training.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Against the target whose digest begins so.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many lines.")] = 20,
    by: Annotated[str | None, typer.Option(help="Who labels.")] = None,
    minimise: Annotated[
        str | None, typer.Option(metavar="ID", help="Shorten its last probe.")
    ] = None,
    calls: Annotated[int, typer.Option(min=1, help="Most replies that --minimise asks for.")] = 200,
    export: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Write those chosen for another tool.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The file, or dataset's folder, to write.")
    ] = None,
    detail: Annotated[
        str, typer.Option(help="Of the text in it: figures, masked, probes or full.")
    ] = "masked",
    as_suite: Annotated[
        bool, typer.Option("--as-suite", help="Ask those chosen again; status 1 if one succeeds.")
    ] = False,
    against: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The model that is asked again.")
    ] = None,
    assignments: Assignments = None,
    preset: Preset = None,
    reveal: Reveal = False,
    as_json: AsJson = False,
) -> None:
    """List the attacks that succeeded in any run, masked; show, label, export or repeat them."""
    words, asking = words or [], (assignments or [], against, preset)
    doing = _action(words, minimise=minimise, as_suite=as_suite, export=export)
    _refuse_others(context, doing)
    choosing = (category, min_score, target, version)
    if doing == LABEL:
        _label(words, by)
    elif minimise is not None:
        _show(_minimise(_find(minimise), _replayer(*asking), calls), None, reveal, as_json)
    elif words:
        _show_one(words, reveal=reveal, as_json=as_json)
    elif doing == "as a list":
        is_all = choosing == (None, 0, None, None)
        _list(_choose(*choosing), count=count, reveal=reveal, as_json=as_json, is_all=is_all)
    else:
        writing = _export_to(export, to, detail, as_suite=as_suite)
        chosen = _usable(_choose(*choosing), writing[0])
        if as_suite:
            _repeat([each for each, _ in chosen], _replayer(*asking), *writing)
        else:
            _write(chosen, *writing)


def _action(
    words: Sequence[str], *, minimise: str | None, as_suite: bool, export: str | None
) -> str:
    """What of ``_TAKES`` is asked for."""
    is_asked = {
        LABEL: words[:1] == [LABEL],
        "--minimise": minimise is not None,
        "ID": bool(words),
        "--as-suite": as_suite,
        "--export": export is not None,
        "as a list": True,
    }
    return next(name for name, is_it in is_asked.items() if is_it)


def _find(wanted: str) -> "ArchivedFinding":
    from tasks.findings.archive import read_archive
    from tasks.findings.listing import the_one

    return the_one(read_archive(), wanted)


def _label(words: Sequence[str], by: str | None) -> None:
    from tasks.findings.labels import write_label

    if len(words) != 3:
        msg = f"astra findings label must have an ID and a label, got {len(words) - 1} words"
        raise ConfigurationError(msg)
    _, wanted, label = words
    one = _find(wanted)
    write_label(one.finding_id, label, by=by)
    say(f"{one.finding_id} is {label} by {by}")


def _show_one(words: Sequence[str], *, reveal: bool, as_json: bool) -> None:
    from tasks.findings.labels import newest_label, read_labels

    if len(words) > 1:
        msg = f"astra findings must have one ID, got {len(words)} words; label comes first"
        raise ConfigurationError(msg)
    one = _find(words[0])
    _show(one, newest_label(one, read_labels()), reveal, as_json)


def _choose(
    category: str | None, min_score: float, target: str | None, version: str | None
) -> "list[ArchivedFinding]":
    from tasks.findings.archive import read_archive
    from tasks.findings.listing import Choosing

    return read_archive(choose=Choosing(category, min_score, target, _keys_of(version)).of)


def _usable(chosen: "list[ArchivedFinding]", name: str) -> "list[tuple[ArchivedFinding, str]]":
    """Those with a label for the labelled export, for all else those that nobody calls false.

    With their labels.
    """
    from tasks.findings.exports import LABELLED
    from tasks.findings.labels import newest_label, read_labels, without_false

    labels, wanted = read_labels(), chosen
    if name != LABELLED:
        wanted = without_false(chosen, labels)
        if left_out := len(chosen) - len(wanted):
            complain(f"{left_out} left out that people call false positives")
    newest = ((each, newest_label(each, labels)) for each in wanted)
    told = [(each, label.label if label else "") for each, label in newest]
    kept = [own for own in told if own[1] or name != LABELLED]
    if not kept:
        kind = "labelled findings" if name == LABELLED else "findings"
        msg = f"the options must choose {kind}, got none; 'astra findings' lists all"
        raise ConfigurationError(msg)
    return kept


def _export_to(
    export: str | None, to: Path | None, detail: str, *, as_suite: bool
) -> "tuple[str, Path, Detail]":
    from tasks.findings.exports import check_export

    if not as_suite and to is None:
        msg = "--export must have a path to write to, got none; add --to PATH"
        raise ConfigurationError(msg)
    name = export or "junit"
    return name, *check_export(name, to, detail)


def _refuse_others(context: typer.Context, doing: str) -> None:
    for own in context.command.params:
        source = context.get_parameter_source(str(own.name))
        if own.name not in _TAKES[doing] and source is not None and source.name == "COMMANDLINE":
            option = "an ID" if own.name == "words" else own.opts[0]
            msg = f"astra findings {doing} must come without {option}, got it; see --help"
            raise ConfigurationError(msg)


def _keys_of(version: str | None) -> tuple[str, str] | None:
    if version is None:
        return None
    from tasks.tracking.lineage.parents import version_keys

    quiet_libraries()
    return version_keys(model_name(), version)


def _replayer(assignments: Sequence[str], against: Path | None, preset: str | None) -> "Replayer":
    """Asks the target of params.yaml, as if these values were in it, or the model of a folder."""
    from flows.settings import examination_params
    from tasks.figures.crossing import BASE, base_with_target
    from tasks.figures.examination import EvaluationParams
    from tasks.findings.replay import Replayer
    from tasks.pipeline.stage import sections_for

    params = examination_params(assignments, preset)
    base = BASE if against is None else base_with_target(against, params)
    return Replayer.of(sections_for(EvaluationParams, params), base)


def _minimise(one: "ArchivedFinding", replayer: "Replayer", calls: int) -> "ArchivedFinding":
    from tasks.findings.archive import ARCHIVE, MINIMISED, add_findings

    short, spent, is_enough = replayer.minimise(one, calls=calls)
    before, after = (len(each.probes[-1].split()) for each in (one, short))
    end = "" if is_enough else "; the calls did not suffice, more words may be left out"
    say(f"from {before} words to {after}, after {spent} replies{end}")
    if short.target != one.target:
        say(f"asked of target {short.target[:8]}, the finding is of {one.target[:8]}")
    if (short.target, after) == (one.target, before):
        return one
    add_findings([short], ARCHIVE / f"{MINIMISED}-{short.finding_id}.parquet")
    return short


def _write(
    chosen: "Sequence[tuple[ArchivedFinding, str]]", name: str, to: Path, level: "Detail"
) -> None:
    from tasks.findings.exports import export
    from tasks.findings.listing import limit_detail
    from tasks.findings.replay import SuiteCase

    cases = [SuiteCase(limit_detail(each, level), label=label) for each, label in chosen]
    for place in export(name, cases, to):
        say(f"{place} has {len(chosen)} findings, their text {level}")


def _repeat(
    chosen: Sequence["ArchivedFinding"], replayer: "Replayer", name: str, to: Path, level: "Detail"
) -> None:
    """Asks the target again; exits with 1 if a finding succeeds, with 3 if one has no answer."""
    from tasks.findings.exports import export
    from tasks.findings.listing import limit_detail
    from tasks.findings.replay import SuiteCase
    from tasks.pipeline.failures import EXIT_GATE

    found = replayer.replay(chosen)
    # What is told is what this target said, as far as it was asked.
    outcomes = [
        SuiteCase(limit_detail(own.replayed_finding(), level), bool(own.hit), own.failure)
        for own in found
    ]
    for place in export(name, outcomes, to):
        say(f"{place} is written")
    hits, lost = sum(bool(own.hit) for own in found), sum(bool(own.failure) for own in found)
    say(f"{hits} of {len(found)} findings succeed against this target, {lost} have no answer")
    if hits or lost:
        raise typer.Exit(1 if hits else EXIT_GATE)


def _show(
    one: "ArchivedFinding", label: "FindingLabel | None", reveal: bool, as_json: bool
) -> None:
    from tasks.findings.listing import conversation_lines, limit_detail

    told = limit_detail(one, "full" if reveal else "masked")
    say_found(_record(told, label), conversation_lines(told, label), as_json=as_json)


def _record(one: "ArchivedFinding", label: "FindingLabel | None") -> dict[str, Any]:
    from dataclasses import asdict

    return {**one.record(), "label": asdict(label) if label else None}


def _list(
    chosen: Sequence["ArchivedFinding"], *, count: int, reveal: bool, as_json: bool, is_all: bool
) -> None:
    from tasks.findings.labels import held_share, newest_label, read_labels
    from tasks.findings.listing import limit_detail, line_of

    labels = read_labels()
    seen = (limit_detail(each, "full" if reveal else "masked") for each in chosen[:count])
    told = [(each, newest_label(each, labels)) for each in seen]
    rows, lines = [_record(*each) for each in told], [line_of(*each) for each in told]
    say_found(rows, lines, as_json=as_json)
    if as_json:
        return
    total = sum(each.alike + 1 for each in chosen)
    say(f"{len(told)} of {len(chosen)} distinct findings, {total} with those nearly the same")
    held, number = held_share(chosen, labels)
    if number:
        say(f"{number} labelled: {held.spelled('.1%')} confirmed")
    if is_all:
        _tell_left_of_rate(chosen, labels)


def _tell_left_of_rate(
    found: Sequence["ArchivedFinding"], labels: "dict[str, FindingLabel]"
) -> None:
    """Prints what labels leave of the last evaluation's success rate, if it has a label."""
    from tasks.findings.labels import corrected_by_people, held_share, of_last_evaluation
    from tasks.records.evaluation import EVALUATION, read_evaluation

    if not (labels and EVALUATION.is_file()):
        return
    record = read_evaluation(EVALUATION)
    held, number = held_share(of_last_evaluation(found, record.evaluation_key), labels)
    if number:
        rate = record.rate()
        left = corrected_by_people(rate, held).spelled(".1%")
        say(f"{number} labels leave {left} of the last evaluation's {rate.spelled('.1%')}")
