from tasks.report.findings import read_findings

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
        found[0].score, found[0].category, found[0].probe, found[0].response,
    )  # fmt: skip


def test_text_in_clear_is_masked_all_the_same():
    found = read_findings(PAGE)[1]

    assert ("y·· s··· i·", "s··· u·") == (found.probe, found.response)


def test_categories_are_kept_and_the_limit_holds():
    page = "| score | prompt | category | probe | response |\n|---|---|---|---|---|\n"
    page += "| 0.9 | p | fraud | a | b |\n" * 3
    found = read_findings(page, limit=2)

    assert ["fraud", "fraud"] == [finding.category for finding in found]


def test_a_page_without_a_table_has_no_findings():
    assert () == read_findings("| 0.9 | p1 | y·· a·· | b·· |\n")
