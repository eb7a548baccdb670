import pickle
import unicodedata
from itertools import pairwise

from each_row import each_row
from hypothesis import given, settings, strategies as st

from astra_core.errors import ConfigurationError
from astra_core.redaction import DOT, mask, visible

# An insult as people spell it to slip through; of each spelling at most the first sign is shown.
SPELLINGS = {
    "plain": "fuck",
    "spaced": "f u c k",
    "widely spaced": "f   u\tc\n k",
    "no-break spaces": "f\u00a0u\u00a0c\u00a0k",
    "dotted": "f.u.c.k",
    "hyphened": "f-u-c-k",
    "underscored": "f_u_c_k",
    "slashed": "f/u/c/k",
    "quoted": "f'u'c'k",
    "in brackets": "(f)(u)(c)(k)",
    "with emoji": "f\U0001f642u\U0001f642c\U0001f642k",
    "with dots of one sign": "f\u2026u\u2026c\u2026k",
    "spaced capitals": "F U C K I N G",
    "leet digits": "5h1t",
    "leet first": "$hit",
    "leet last": "a$$",
    "at sign": "@ss",
    "leet inside": "b!+ch",
    "starred": "f*ck",
    "starred twice": "f**k",
    "spaced leet": "$ h 1 t",
    "joined": "youidiot",
    "joined capitals": "YouStupidIdiot",
    "accented": "f\u00fcck",
    "accents of their own": "fu\u0308ck",
    "struck through": "f\u0336u\u0336c\u0336k\u0336",
    "full-width": "\uff46\uff55\uff43\uff4b",
    "full-width, spaced": "\uff46 \uff55 \uff43 \uff4b",
    "full-width, dotted": "\uff46\uff0e\uff55\uff0e\uff43\uff0e\uff4b",
    "mathematical": "\U0001d487\U0001d4fe\U0001d4ec\U0001d4f4",
    "circled": "\u24d5\u24e4\u24d2\u24da",
    "squared": "\U0001f175\U0001f184\U0001f172\U0001f17a",
    "flags": "\U0001f1eb\U0001f1fa\U0001f1e8\U0001f1f0",
    "superscript": "\u1da0\u1d58\u1d9c\u1d4f",
    "zero-width spaces": "f\u200bu\u200bc\u200bk",
    "soft hyphens": "f\u00adu\u00adc\u00adk",
    "joiners": "f\u200du\u2060c\ufeffk",
    "right to left": "\u202ekcuf\u202c",
    "coloured": "\x1b[31mfuck\x1b[0m",
    "overtyped": "f\x08u\x08c\x08k",
    "Cyrillic": "\u0441\u0443\u043a\u0430",
}
# Of signs that are a word or a syllable none is shown.
UNSHOWN = (
    "\u64cd",
    "\u50bb\u903c",
    "\u50bb \u903c",
    "\u304f\u305d",
    "\uff78\uff7f",
    "\uc528\ubc1c",
    "\uc886",
)


def shown_letters(text):
    """The letters and digits that a text shows, as a reader would read them."""
    plain = unicodedata.normalize("NFKC", text)
    return [c for c in plain if c.isalnum() or c in "$@" or "LETTER" in unicodedata.name(c, "")]


@each_row(
    ("text", "expected"),
    [
        ("You never listen!", "Y·· n···· l·····!"),
        ("a I", "a ·"),
        ("what?! yes", "w···?! y··"),
        ("", ""),
        ("  two\n\nlines ", "t·· l····"),
        ("Straße-naïve 123", "S·····-n···· 1··"),
    ],
)
def test_only_the_first_letter_of_a_word_is_shown(text, expected):
    assert expected == mask(text)


def test_masking_twice_shows_no_more():
    once = mask("You never listen")

    assert "".join(sorted(set(once))) == " Yln·"
    assert not set(mask(once)) - set(once)


@each_row("name", SPELLINGS)
def test_of_a_spelling_that_slips_through_one_sign_is_shown_at_most(name):
    shown = mask(SPELLINGS[name])

    assert len(shown_letters(shown)) <= 1, shown
    assert DOT in shown


@each_row("text", UNSHOWN)
def test_of_signs_that_are_words_none_is_shown(text):
    assert [] == shown_letters(mask(text))
    assert [] == shown_letters(mask(f"so {text} it"))[3:]


# All but surrogates, as in st.text, which would take seconds to find out what UTF-8 encodes.
@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_masking_shows_no_two_letters_side_by_side_and_is_done_in_one_go(text):
    once = mask(text)
    is_shown = [bool(unicodedata.category(char)[0] in "LN") for char in once]

    assert not any(one and two for one, two in pairwise(is_shown))
    assert once == mask(once)
    assert once == visible(once)


@given(
    st.text("abcdefgxyz", min_size=2), st.sampled_from([" ", ".", "-", "_", "\u200b", " . ", "*"])
)
def test_what_stands_between_letters_hides_nothing(word, between):
    assert 1 == len(shown_letters(mask(between.join(word))))


STEERING = [
    *map(chr, range(9)),
    *map(chr, range(11, 32)),
    *map(chr, range(0x7F, 0xA0)),
    *map(chr, [0x61C, 0x200E, 0x200F, 0x2028, 0x2029]),
    *map(chr, range(0x202A, 0x202F)),
    *map(chr, range(0x2066, 0x206A)),
    "\ud800",
    "\U000e0041",
]


@each_row("char", STEERING)
def test_no_character_steers_a_terminal(char):
    shown = visible(f"a{char}b")

    assert char not in shown
    assert shown == f"a{ascii(char)[1:-1]}b"


@each_row(
    "text",
    ["", "two\nlines\tand a tab", "Grüße, 世界 \U0001f642", "no\u00a0break", "one\u200cword"],
)
def test_other_text_is_shown_as_it_is(text):
    assert text == visible(text)


def test_an_error_that_quotes_a_name_steers_no_terminal_also_after_a_journey():
    error = ConfigurationError("no file '\x1b[2J\u202egnp.exe'; check it")
    expected = "no file '\\x1b[2J\\u202egnp.exe'; check it"

    assert expected == str(error) == str(pickle.loads(pickle.dumps(error)))  # noqa: S301 - our own
