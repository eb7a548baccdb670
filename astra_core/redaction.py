"""Attacks and offensive text are shown masked unless a user asks to see them.

In any case, the characters shown can neither control a terminal nor change the order in which a
line is read.
"""

import re
import unicodedata

DOT = "·"
# Characters that replace a letter in words that are meant to evade a filter: $hit, @ss, a$$.
_LEET = "$@€£¢¥§"
# Inside a word these replace letters too, or separate them: sh!t, f*ck, f.u.c.k. At its end they
# are punctuation.
_INNER = "!|*+#.~^=<>&%\\[]{}?°•∙"
# What stands before a host; a password may hold any other character.
_LOGIN = re.compile(r"(?<=://)[^\s'\"]*@")
# A query or a fragment: in an address, or after a host without its scheme where it names a value.
_QUERY = re.compile(r"(://[^\s'\"?#]*[?#]|(?<=[\w/\]])[?#](?=[\w.~%-]+=))[^\s'\"]+")
# One letter of the shape for each character of the text: w a part of a word, c one of a script
# whose signs are words or syllables, i inner, s space, x anything else.
_WORD = re.compile(r"[wc](?:[wc]|i+(?=[wc]))*")
_INVISIBLE = frozenset({"Mn", "Me", "Cf", "Cc", "Cs"})
# Joiners shape the letters of some scripts, and reorder nothing.
_HARMLESS = frozenset({"\n", "\t", "\u200c", "\u200d"})


def mask(text: str) -> str:
    """The text with the letters after the first of each word replaced by dots.

    Spaced letters count as one word. Of characters that are words or syllables none is shown.

    >>> mask("You never listen!")
    'Y·· n···· l·····!'
    >>> mask("f u c k y.o.u")
    'f · · · y····'
    """
    composed = unicodedata.normalize("NFC", text)
    plain = "".join(
        char for char in composed if char.isspace() or unicodedata.category(char) not in _INVISIBLE
    )
    plain = " ".join(plain.split())
    shown = list(plain)
    shape = "".join(map(_shape, plain))
    follows_single = False
    for word in _WORD.finditer(shape):
        start, end = word.span()
        is_single = end - start == 1
        is_hidden = shape[start] == "c" or (is_single and follows_single)
        for place in range(start if is_hidden else start + 1, end):
            shown[place] = DOT
        follows_single = is_single
    return "".join(shown)


def _shape(char: str) -> str:
    if char == " ":
        return "s"
    if char in _INNER:
        return "i"
    if char.isalpha() and unicodedata.east_asian_width(char) in "WH":
        return "c"
    if char in _LEET or char in "_" + DOT or unicodedata.category(char)[0] in "LMN":
        return "w"
    # Letters in circles, in squares and in flags.
    return "w" if "LETTER" in unicodedata.name(char, "") else "x"


def without_credentials(text: str) -> str:
    """The text without what logs in: user and query of every address in it.

    >>> without_credentials("got 'http://me:secret@host/v1?key=sk-1'")
    "got 'http://***@host/v1?***'"
    """
    return _LOGIN.sub("***@", _QUERY.sub(r"\1***", text))


def visible(text: str) -> str:
    r"""The text with control characters and direction marks escaped.

    Line breaks and tabs stay. Programs that print text from other sources on a terminal use this.

    >>> visible("\x1b[31mred\u202e")
    '\\x1b[31mred\\u202e'
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char.isprintable() or char in _HARMLESS:
        return char
    if unicodedata.category(char) in {"Zs", "Cn", "Co"}:
        return char
    return ascii(char)[1:-1]
