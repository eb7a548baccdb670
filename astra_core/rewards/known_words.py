"""Words that are not invented: those of the prompts, the built-in grammar and the options."""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from astra_core.config import Section
from astra_core.rewards.grammar_words import GRAMMAR_WORDS
from astra_core.rollout import Prompt
from astra_core.system import System

_WORD = re.compile(r"[^\W\d_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}][^\W\d_]+)*")
# From this size on, vocabulary entries that begin a word are mostly words rather than syllables.
_LARGE_VOCABULARY = 16_000


class KnownWordsOptions(Section):
    """Where known words come from, beside the prompts and the built-in grammar."""

    extra_words: tuple[str, ...] = ()
    vocabulary: Literal["auto", "used", "unused"] = "auto"


class KnownWords:
    """A set of words, collected once from the run's own texts; no list from outside.

    It has the words of the built-in grammar, of the run's prompts and their goals, and the extra
    ones of the options. With a large vocabulary (``auto``) or on request it also has the entries of
    the reference's tokenizer that begin a word and have only letters.
    """

    def __init__(self, options: KnownWordsOptions) -> None:
        self._options = options
        self._words = set(GRAMMAR_WORDS)
        self._add(options.extra_words)

    def learn(self, system: System, prompts: Sequence[Prompt]) -> None:
        """Adds the words of the prompts and of the vocabulary."""
        self._add(prompt.text for prompt in prompts)
        self._add(str(prompt.metadata.get("goal") or "") for prompt in prompts)
        reference = system.player(0).reference
        is_large = reference.vocabulary_size >= _LARGE_VOCABULARY
        use = self._options.vocabulary
        if use == "used" or (use == "auto" and is_large):
            self._add(whole_words(reference.tokenizer))

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def _add(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._words.update(words_of(text))


def words_of(text: str) -> list[str]:
    """The words of a text, made of letters, in lower case."""
    return _WORD.findall(text.lower())


def whole_words(tokenizer: object) -> list[str]:
    """Entries of a vocabulary that are a word of letters, and for subwords, begin one."""
    pieces: Iterable[str] = tokenizer.get_vocab()  # type: ignore[attr-defined]
    marked = [piece[1:] for piece in pieces if piece[:1] in {"\u0120", "\u2581"}]  # Ġ and ▁
    return [piece for piece in (marked or pieces) if _WORD.fullmatch(piece)]
