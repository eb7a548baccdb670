"""How varied a set of probes is; the figures depend on its size, so compare equal sizes."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import regex

UNSPACED = (
    r"[[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    "\N{KATAKANA-HIRAGANA PROLONGED SOUND MARK}\N{HALFWIDTH KATAKANA-HIRAGANA PROLONGED SOUND MARK}"
    "\N{HALFWIDTH KATAKANA VOICED SOUND MARK}\N{HALFWIDTH KATAKANA SEMI-VOICED SOUND MARK}"
    r"]&&\p{L}]"
)
"""Letters of scripts without spaces between words, a character class of the library ``regex``: each
letter with its marks is a word, so that n-grams of words are n-grams of letters there."""
# What belongs to the letter before it; not the selectors of variants, which follow emoji.
_MARK = r"[[\p{Mn}\p{Mc}]--[\uFE00-\uFE0F]]"
_JOINER = r"[\u200C\u200D]"  # invisible between two letters of one word
UNSPACED_WORD = rf"{UNSPACED}{_MARK}*"
"""A word of these scripts."""


def run_of(letter: str) -> str:
    """The expression for a run of these letters, each with its marks and joiners between them."""
    return rf"{letter}(?:{_JOINER}?[{letter}{_MARK}])*"


_LETTERS = run_of(rf"[[\p{{L}}\p{{N}}_]--{UNSPACED}]")
_WORD = regex.compile(rf"{UNSPACED_WORD}|{_LETTERS}", regex.VERSION1)
WORD_OR_MARK = regex.compile(rf"{UNSPACED_WORD}|{_LETTERS}|[^\w\s]", regex.VERSION1)
"""A word, or a punctuation mark or symbol."""


def words(text: str) -> list[str]:
    """Lower-cased words of a text, punctuation left out."""
    found: list[str] = _WORD.findall(text.lower())
    return found


def unique_fraction(texts: Sequence[str]) -> float:
    """Share of distinct texts, in [0, 1]; spelling in capitals and spacing do not count."""
    if not texts:
        return 0.0
    return len({" ".join(words(text)) for text in texts}) / len(texts)


def distinct_n(texts: Sequence[str], n: int) -> float:
    """Distinct word n-grams over all word n-grams, in [0, 1] (Li et al., arXiv:1510.03055)."""
    grams = [gram for text in texts for gram in ngrams(words(text), n)]
    return len(set(grams)) / len(grams) if grams else 0.0


def self_bleu(texts: Sequence[str], *, max_n: int = 4) -> float:
    """Mean BLEU of each text against all others, in [0, 1]; lower is more varied.

    Clipped n-gram precision of orders 1 to ``max_n`` with add-one smoothing above order 1 and the
    brevity penalty against the closest reference length. The two highest counts of each n-gram
    over the set give the highest count among the *others*, so the cost is linear in the number of
    texts.

    Source: Zhu et al., arXiv:1802.01886; smoothing of Lin and Och, ACL 2004.
    """
    tokens = [words(text) for text in texts]
    if len(tokens) < 2:
        return 0.0
    peaks = [_two_highest(tokens, n) for n in range(1, max_n + 1)]
    lengths = Counter(len(own) for own in tokens)
    return math.fsum(_bleu(own, peaks, lengths) for own in tokens) / len(tokens)


def ngrams(tokens: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    """Every run of ``n`` tokens."""
    return (tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _two_highest(tokens: list[list[str]], n: int) -> dict[tuple[str, ...], tuple[int, int]]:
    highest: dict[tuple[str, ...], tuple[int, int]] = {}
    for own in tokens:
        for gram, count in Counter(ngrams(own, n)).items():
            first, second = highest.get(gram, (0, 0))
            highest[gram] = (count, first) if count > first else (first, max(second, count))
    return highest


def _bleu(
    own: list[str], peaks: list[dict[tuple[str, ...], tuple[int, int]]], lengths: Counter[int]
) -> float:
    if not own:
        return 0.0
    log_precision = 0.0
    for n, highest in enumerate(peaks, start=1):
        counts = Counter(ngrams(own, n))
        clipped = 0
        for gram, count in counts.items():
            first, second = highest[gram]
            clipped += min(count, second if count == first else first)
        smoothing = 1 if n > 1 else 0
        total = sum(counts.values()) + smoothing
        if clipped + smoothing == 0:
            return 0.0
        log_precision += math.log((clipped + smoothing) / max(total, 1)) / len(peaks)
    others = lengths - Counter([len(own)])
    closest = min(others, key=lambda length: (abs(length - len(own)), length))
    brevity = min(0.0, 1.0 - closest / len(own))
    return math.exp(brevity + log_precision)
