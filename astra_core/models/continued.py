"""The ids of a text that follows other text.

A tokenizer in the manner of SentencePiece puts the mark of a new word before whatever comes first.
In the middle of a conversation that mark would be a token which the rendered text does not have.
"""

from astra_core.models.language_model import LanguageModel

_BEFORE = "\n"  # merges with nothing where a mark is put before it: such vocabularies have bytes


def leading(model: LanguageModel) -> str:
    """What to put before a text that follows other text; empty where the first is not marked."""
    return _BEFORE if len(model.encode(_BEFORE)) > 1 else ""


def continued_ids(model: LanguageModel, text: str) -> tuple[int, ...]:
    """The ids of the text as they are behind other text."""
    before = model.encode(leading(model))
    ids = model.encode(leading(model) + text)
    return ids[len(before) :] if ids[: len(before)] == before else model.encode(text)
