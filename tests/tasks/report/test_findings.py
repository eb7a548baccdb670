from dataclasses import replace

from astra_core.files import record_digest
from tasks.findings.archive import ArchivedFinding, add_findings
from tasks.findings.labels import write_label
from tasks.records.prompt_table import spelled_metadata
from tasks.report.findings import archived_findings, read_findings

PAGE = """\
# Highest-scored turns

| score | prompt | probe | response |
|---|---|---|---|
| 1.00 | p1 | Y·· a·· | S··· |
| 0.75 | p2 | you said it | shut up |

# Attack success by category

| category | prompts | untrained |
|---|---|---|
| fraud | 7 | 0.1 |
"""


def test_the_table_of_turns_is_read_and_no_other():
    found = read_findings(PAGE)

    assert ["p1", "p2"] == [finding.prompt for finding in found]
    assert ("1.00", "", "Y·· a··", "S···") == (
        found[0].score, found[0].category, *found[0].turns[0],
    )  # fmt: skip


def test_text_in_clear_is_masked_all_the_same():
    found = read_findings(PAGE)[1]

    assert ("y·· s··· i·", "s··· u·") == found.turns[0]


def test_categories_are_kept_and_the_limit_holds():
    page = "| score | prompt | category | probe | response |\n|---|---|---|---|---|\n"
    page += "| 0.9 | p | fraud | a | b |\n" * 3
    found = read_findings(page, limit=2)

    assert ["fraud", "fraud"] == [finding.category for finding in found]


def test_a_page_without_a_table_has_no_findings():
    assert () == read_findings("| 0.9 | p1 | y·· a·· | b·· |\n")


def archived(attacker="a1" * 32, *, run="r1", probes=("go on", "you fool"), score=0.9, **changes):
    told = {"category": "fraud"}
    return ArchivedFinding(
        finding_id=record_digest([probes, attacker])[:16], source="evaluation", run=run,
        attacker=attacker, target="7a" * 32, judge="j", iteration=0, prompt_id="p1", prompt="why",
        metadata=spelled_metadata(told), path="0.0", probes=probes,
        replies=("no",) * len(probes), scores=(score,), rationale="", score=score, **changes,
    )  # fmt: skip


def test_the_archive_gives_whole_conversations_of_this_version_and_its_training(tmp_path):
    own = archived()
    trained = archived("", run="k" * 16, probes=("a quite other text",), score=0.8)
    trained = replace(trained, source="training", iteration=3)
    other = archived("b2" * 32, probes=("nothing of that kind at all",), score=1.0)
    add_findings([own, trained, other], tmp_path / "evaluation-r1.parquet")
    write_label(own.finding_id, "false_positive", by="ann", archive=tmp_path)
    found = archived_findings(("a1" * 32, "k" * 64), archive=tmp_path)

    assert ["0.90", "0.80"] == [each.score for each in found]
    assert (("g· o·", "n·"), ("y·· f···", "n·")) == found[0].turns
    assert f"{own.finding_id}, evaluation, false positive by a person" == found[0].note
    assert "training step 3" in found[1].note
    assert 1 == len(archived_findings(("a1" * 32, "k" * 64), archive=tmp_path, limit=1))


def test_a_machine_without_an_archive_has_none(tmp_path):
    assert () == archived_findings(("a1" * 32, "k" * 64), archive=tmp_path / "none")
