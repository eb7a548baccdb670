"""The words that are known, by which invented words are recognised."""

from pathlib import Path

from astra_core.metrics.diversity import words
from tasks.expectations.languages import languages_of
from tasks.records.prompt_table import SPLITS
from tasks.records.prompts import read_prompts


def read_vocabulary(valid: Path) -> frozenset[str]:
    """Words of the valid prompts, and of the word lists of their languages.

    The lists are those of wordfreq, which come with the package: words that at least five sources
    of a language have, once in a hundred million words, or three sources, once in a million.
    Single letters are known too: they are the words of scripts without spaces.
    """
    from wordfreq import available_languages, iter_wordlist

    paths = [path for split in SPLITS if (path := valid / f"{split}.parquet").is_file()]
    texts = [prompt.text for path in paths for prompt in read_prompts(path)]
    listed = languages_of(texts) & available_languages().keys()
    known = {word for language in listed for word in iter_wordlist(language)}
    known.update("".join(known), *map(words, texts))
    return frozenset(known)
