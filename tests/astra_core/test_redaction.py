import pytest

from astra_core.redaction import masked


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You never listen!", "Y·· n···· l·····!"),
        ("a I", "a I"),
        ("", ""),
        ("  two\n\nlines ", "t·· l····"),
        ("Straße-naïve 123", "S·····-n···· 1··"),
    ],
)
def test_only_the_first_letter_of_a_word_is_shown(text, expected):
    assert expected == masked(text)


def test_masking_twice_shows_no_more():
    once = masked("You never listen")

    assert "".join(sorted(set(once))) == " Yln·"
    assert not set(masked(once)) - set(once)
