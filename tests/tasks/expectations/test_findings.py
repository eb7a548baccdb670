import random

import pytest
from each_row import each_row

from tasks.expectations.findings import (
    BROKEN_TEXT,
    FINDINGS,
    PERSONAL_DATA,
    RECOGNISERS,
    holds,
    holds_postal_address,
)


@each_row(
    ("finding", "text"),
    [
        ("control_character", "a bell\x07 rings"),
        ("control_character", "hidden \u202e txet"),
        ("replacement_character", "caf\ufffd"),
        ("template_token", "Hello {{ name }}!"),
        ("template_token", "Hello {name}!"),
        ("template_token", "Hello ${NAME}!"),
        ("template_token", "Dear {User.name}!"),
        ("template_token", "Dear <NAME>!"),
        ("template_token", "Dear [INSERT NAME HERE]!"),
        ("template_token", "Dear %(name)s!"),
        ("template_token", "{% if user %}hello"),
        ("template_token", "<|im_start|>user"),
        ("template_token", "the end</s>"),
        ("template_token", "[INST] hello"),
        ("email", "write to jane.doe+x@mail.example.org today"),
        ("phone", "call 555-123-4567 now"),
        ("phone", "call (555) 123-4567 now"),
        ("phone", "call +49 30 1234567 now"),
        ("phone", "call 030/1234567 now"),
        ("user_mention", "thanks u/some_body"),
        ("user_mention", "thanks /u/some_body"),
        ("user_mention", "thanks @somebody!"),
        ("url", "see https://example.invalid/a"),
        ("url", "see hxxp://example.invalid"),
        ("url", "see www.example.invalid"),
        ("url", "on reddit.com today"),
    ],
)
def test_findings_find(finding, text):
    assert FINDINGS[finding].search(text)
    assert holds(finding, text)


@each_row(
    ("finding", "text"),
    [
        ("control_character", "tab\tand\r\nline, family emoji 👩\u200d👧"),
        ("replacement_character", "a question mark?"),
        ("template_token", 'a set {1, 2}, a < b and <b>bold</b>, JSON {"a": 1}'),
        ("email", "meet me @ noon, 3@5, a@b"),
        ("phone", "from 1999 to 2024, 1,000,000 people, 3.14159, 12:30"),
        ("phone", "pi is 3.141 592 6535 and it cost 100 200"),
        (
            "user_mention",
            "the @property decorator, @media print, @font-face, @Override, @app.route('/x')",
        ),
        ("user_mention", "either/or, you/me, at @ noon, jane@mail.example.org"),
        ("url", "the end.Next sentence, e.g. this, 3.5 comrades"),
    ],
)
def test_findings_let_ordinary_text_pass(finding, text):
    assert FINDINGS[finding].search(text) is None
    assert not holds(finding, text)


# What the patterns are made of, and what only looks like it.
PIECES = (
    "jane",
    "@",
    "u/",
    "/",
    ".",
    "-",
    "com",
    "CO.UK",
    "\u017f",
    "\u0131",
    "https",
    "hxxp",
    ":",
    "://",
)
PIECES += ("www", "555", "٣", "+49", "0", "30", "(", ")", " ", "_", "{", "}", "é", "\ufffd", "\x07")


@each_row("finding", FINDINGS)
def test_what_is_looked_for_first_hides_nothing(finding):
    draw = random.Random(0)
    texts = ["".join(draw.choices(PIECES, k=draw.randint(1, 12))) for _ in range(20_000)]
    found = [FINDINGS[finding].search(text) is not None for text in texts]

    assert found == [holds(finding, text) for text in texts]
    assert 5 < sum(found) < len(texts)


def test_findings_are_all_in_use():
    assert {*FINDINGS, *RECOGNISERS} == {*BROKEN_TEXT, *PERSONAL_DATA}


@each_row(
    ("finding", "text"),
    [
        ("card_number", "pay with 4111 1111 1111 1111 now"),
        ("iban", "send it to DE89 3704 0044 0532 0130 00 NOW"),
        ("ip_address", "it came from 8.8.8.8, I think"),
        ("national_id", "my number is 536-90-4399"),
        ("postal_address", "write to Jane Doe, 12 Elm Street, Springfield"),
    ],
)
def test_a_prefix_hides_no_recogniser(finding, text):
    assert holds(finding, text)
    assert RECOGNISERS[finding](text)


# Linear is milliseconds; quadratic would be many minutes.
@pytest.mark.timeout(120)
@each_row("finding", FINDINGS)
@each_row("unit", ["a", "a.", "a-", "@", "{", "1 ", "12 345 ", "+1 ", "u/"])
def test_findings_search_a_huge_text_in_linear_time(finding, unit):
    text = unit * (50_000 // len(unit))
    found = FINDINGS[finding].search(text)

    assert found is None or found.end() <= len(text)


@each_row(
    "text",
    [
        "Write to Jane Doe, 12 Elm Street, Springfield",
        "Jane Q. Doe lives at 5 Oak Tree Lane",
        "Anna M\u00fcller wohnt in der Goethestra\u00dfe 12",
        "Jean Dupont, 12 rue de Rivoli",
        "Ana P\u00e9rez vive en Calle Mayor, 5",
    ],
)
def test_a_name_with_a_street_is_an_address(text):
    assert holds_postal_address(text)


@each_row(
    "text",
    [
        "12 Elm Street is a film",
        "Jane Doe is a name",
        "I saw 3 Red Cars on my Way",
        "New York has 8 million people",
    ],
)
def test_a_street_or_a_name_alone_is_none(text):
    assert not holds_postal_address(text)


@pytest.mark.timeout(120)
@each_row("unit", ["Aa ", "1 ", "Aa Bb c 1 Dd "])
def test_a_huge_text_is_searched_in_linear_time(unit):
    assert not holds_postal_address(unit * (50_000 // len(unit)))
