"""A hardening in tables: what each round has changed, and every attacker against every target."""

from tasks.records.hardening import Hardening
from tasks.report.tables import Table, markdown_table, percent

_NOTE = (
    "An old attacker says little: a target learns what that one does. The fresh attacker was "
    "trained on the target it meets. Perplexity is of what target 0 answered harmless requests "
    "that nothing was learned from; its ratio is to target 0."
)


def hardening_tables(found: Hardening) -> list[Table]:
    """The rounds, and the cross-play."""
    cells = found.success
    head = ("Target", "Old attacker", "Fresh attacker", "Over-refusal", "Perplexity", "Ratio")
    rounds = tuple(
        (
            f"target {own.number}" + (f", version {own.version}" if own.version else ""),
            percent(cells[own.number][0]),
            percent(cells[own.number][own.number]) if own.number in cells[own.number] else "-",
            percent(own.over_refusal),
            own.perplexity.spelled(".2f"),
            own.perplexity_ratio.spelled(".3f"),
        )
        for own in found.rounds
    )
    play = tuple(
        (
            f"fresh attacker {number}" if number else "old attacker",
            *(percent(cells[own.number][number]) for own in found.rounds),
        )
        for number in found.attackers
    )
    targets = tuple(f"target {own.number}" for own in found.rounds)
    success = f"Attack success on {found.num_prompts} test prompts."
    return [
        Table("Hardened targets", head, rounds, f"{success} {_NOTE}"),
        Table("Every attacker against every target", ("Attacker", *targets), play, success),
    ]


def hardening_page(found: Hardening, *, best: int) -> str:
    """The tables in Markdown, with the reason for the end."""
    learned = ", ".join(
        f"round {own.number} from {own.num_findings} findings and {own.num_benign} harmless pairs"
        for own in found.rounds[1:]
    )
    told = [
        "# Hardening",
        f"Intervals are of {found.confidence:.0%}. Learned: {learned or 'nothing yet'}.",
        *(markdown_table(table).rstrip() for table in hardening_tables(found)),
        f"The last target within the limits is target {best}, in "
        f"`models/hardened/{found.key}/target_{best}`."
        if best
        else "No hardened target is within the limits.",
    ]
    return "\n\n".join([*told, *([f"Ended: {found.ended}."] if found.ended else [])]) + "\n"
