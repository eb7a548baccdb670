"""``astra findings``: the archive of attacks that succeeded; only typer is imported here."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from flows.usage import Assignments

if TYPE_CHECKING:
    from astra_core.metrics.statistics import Interval
    from tasks.findings.archive import ArchivedFinding
    from tasks.findings.labels import FindingLabel
    from tasks.findings.replay import Replayer

LABEL = "label"


def findings(
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
    assignments: Assignments = None,
    reveal: Annotated[bool, typer.Option("--reveal", help="Show the text unmasked.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the attacks that succeeded in any run, masked; show, label or shorten one."""
    from tasks.findings.archive import read_archive
    from tasks.findings.labels import read_labels, write_label
    from tasks.findings.listing import Choosing, the_one
    from tasks.machine.console import say

    words = words or []
    archive, labels = read_archive(), read_labels()
    if words[:1] == [LABEL]:
        _, wanted, label = _three(words)
        one = the_one(archive, wanted)
        write_label(one.finding_id, label, by=by)
        say(f"{one.finding_id} is {label} by {by}")
        return
    if minimise is not None:
        one = the_one(archive, minimise)
        _show(_minimised(one, _replayer(assignments or []), calls), None, reveal, as_json)
        return
    if words:
        one = the_one(archive, _one(words))
        _show(one, labels.get(one.finding_id), reveal, as_json)
        return
    chosen = Choosing(category, min_score, target, _keys_of(version)).of(archive)
    _list(chosen, labels, count=count, reveal=reveal, as_json=as_json)


def _three(words: Sequence[str]) -> Sequence[str]:
    if len(words) != 3:
        from astra_core.errors import ConfigurationError

        msg = f"astra findings label must have an ID and a label, got {len(words) - 1} words"
        raise ConfigurationError(msg)
    return words


def _one(words: Sequence[str]) -> str:
    if len(words) > 1:
        from astra_core.errors import ConfigurationError

        msg = f"astra findings must have one ID, got {len(words)} words; label comes first"
        raise ConfigurationError(msg)
    return words[0]


def _keys_of(version: str | None) -> tuple[str, str] | None:
    if version is None:
        return None
    from tasks.machine.console import quiet_libraries
    from tasks.params.schema import read_params
    from tasks.tracking.lineage.parents import version_keys

    quiet_libraries()
    return version_keys(read_params().registration.model_name, version)


def _replayer(assignments: Sequence[str]) -> "Replayer":
    """Asks the target of params.yaml, as if these values were in it."""
    from dataclasses import fields

    from flows.settings import changed_params
    from tasks.figures.examination import EvaluationParams
    from tasks.findings.replay import Replayer
    from tasks.machine.console import quiet_libraries
    from tasks.machine.environment import set_environment
    from tasks.machine.thread_waits import set_thread_waits
    from tasks.pipeline.stage import sections_for

    sections = tuple(field.name for field in fields(EvaluationParams))
    params = changed_params(assignments, sections=sections)
    set_environment(params)
    set_thread_waits(params.machine.num_threads)
    quiet_libraries()
    return Replayer.of(sections_for(EvaluationParams, params))


def _minimised(one: "ArchivedFinding", replayer: "Replayer", calls: int) -> "ArchivedFinding":
    from tasks.findings.archive import ARCHIVE, MINIMISED, write_findings
    from tasks.machine.console import say

    short, spent = replayer.minimise(one, calls=calls)
    write_findings([short], ARCHIVE / f"{MINIMISED}-{short.finding_id}.parquet")
    before, after = (len(each.probes[-1].split()) for each in (one, short))
    say(f"from {before} words to {after}, after {spent} replies")
    return short


def _show(
    one: "ArchivedFinding", label: "FindingLabel | None", reveal: bool, as_json: bool
) -> None:
    from dataclasses import asdict

    from tasks.findings.listing import conversation_lines, shown
    from tasks.machine.console import say

    told = shown(one, "full" if reveal else "masked")
    if as_json:
        record = {**told.record(), "label": asdict(label) if label else None}
        say(json.dumps(record, indent=2, ensure_ascii=False))
        return
    for line in conversation_lines(told, label):
        say(line)


def _list(
    chosen: Sequence["ArchivedFinding"],
    labels: "dict[str, FindingLabel]",
    *,
    count: int,
    reveal: bool,
    as_json: bool,
) -> None:
    from tasks.findings.labels import held_share
    from tasks.findings.listing import line_of, shown
    from tasks.machine.console import say

    told = [shown(each, "full" if reveal else "masked") for each in chosen[:count]]
    if as_json:
        rows = [
            {**each.record(), "label": labels[each.finding_id].label}
            if each.finding_id in labels
            else each.record()
            for each in told
        ]
        say(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for each in told:
        say(line_of(each, labels.get(each.finding_id)))
    total = sum(each.alike + 1 for each in chosen)
    say(f"{len(told)} of {len(chosen)} distinct findings, {total} with those nearly the same")
    held, number = held_share(chosen, labels)
    if number:
        say(f"{number} labelled: {held.spelled('.1%')} confirmed{_left_of_rate(held)}")


def _left_of_rate(held: "Interval") -> str:
    """The last evaluation's success rate, and what is left of it; empty if there is none."""
    from tasks.findings.labels import corrected_by_people
    from tasks.records.evaluation import EVALUATION, read_evaluation

    if not EVALUATION.is_file():
        return ""
    rate = read_evaluation(EVALUATION).rate()
    left = corrected_by_people(rate, held)
    return f"; of the last evaluation's {rate.spelled('.1%')} that leaves {left.spelled('.1%')}"
