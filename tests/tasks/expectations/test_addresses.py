import pytest
from each_row import each_row

from tasks.expectations.addresses import holds_postal_address


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
