"""Templates with slots: ``the {parts} look {bad}`` becomes a sentence by drawing words."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Topic:
    """Something people talk about, in the forms that templates need.

    Attributes:
        thing: A singular noun that stands after "my" or "your".
        doing: A gerund phrase.
        do: The same phrase after "to".
        parts: Plural nouns that stand after "the".
    """

    thing: str
    doing: str
    do: str
    parts: tuple[str, ...]

    def slots(self) -> dict[str, tuple[str, ...]]:
        """Word lists of the slots that this topic fills."""
        return {
            "thing": (self.thing,),
            "doing": (self.doing,),
            "do": (self.do,),
            "parts": self.parts,
        }


def fill(template: str, slots: Mapping[str, Sequence[str]], rng: random.Random) -> str:
    """The template with every slot drawn from its word list, begun with a capital.

    A drawn text may hold slots of its own; they are filled too.

    Args:
        template: Text with slots in braces.
        slots: The word list of each slot.
        rng: Draws the words.
    """
    text = template
    while _SLOT.search(text):
        text = _SLOT.sub(lambda match: rng.choice(slots[match[1]]), text)
    return text[0].upper() + text[1:]
