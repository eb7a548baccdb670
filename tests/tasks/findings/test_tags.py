import json

from found_by_hand import finding

from tasks.findings.tags import TAGS, tags_of


def test_every_finding_is_an_injection_and_a_category_adds_its_hazard():
    plain = tags_of(finding())
    hateful = tags_of(finding(metadata=json.dumps({"category": "Hate speech"})))

    assert "owasp-llm-2026:LLM01" == plain[0]
    assert {"mitre-atlas:AML.T0054", "nist-ai-600-1:2.9", "eu-ai-act:15"} < set(plain)
    assert {"ailuminate-1.1:hte", "nist-ai-600-1:2.3"} == set(hateful) - set(plain)
    numbers = {row.tag[-5:] for row in TAGS if row.tag.startswith("owasp-llm-2026:")}
    assert {f"LLM{number:02}" for number in range(1, 11)} == numbers
    assert plain == tags_of(finding(metadata=json.dumps({"category": "chateau"})))
    assert "ailuminate-1.1:hte" in tags_of(finding(metadata=json.dumps({"category": "s10_hate"})))


def test_a_row_has_a_number_of_its_own_and_a_source():
    assert len(TAGS) == len({row.tag for row in TAGS})
    assert all(row.source.startswith("https://") and ":" in row.tag for row in TAGS)
