"""Slots of a target's system prompt, such as ``{secret}``, which each prompt's columns fill."""

import re
from collections.abc import Callable

from astra_core.errors import DataError
from astra_core.rollout.prompt import Prompt

# Other braces stay as they are, since a system prompt may hold code or JSON.
_SLOT = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|\{([A-Za-z_]\w*)\}")


def columns_in(text: str) -> frozenset[str]:
    """The columns that a text names in braces; ``{{name}}`` is the text ``{name}``.

    >>> sorted(columns_in('The code of {owner} is {secret}, {{owner}} is none, nor {"a": 1}.'))
    ['owner', 'secret']
    """
    return frozenset(column for _, column in _SLOT.findall(text) if column)


def fill_slots(text: str, prompt: Prompt, *, spelled: Callable[[str], str] = str) -> str:
    """The text with the prompt's own values in its slots.

    Raises DataError if the prompt has no value in a column that is named.
    """

    def value_of(slot: re.Match[str]) -> str:
        literal, column = slot.groups()
        if literal:
            return f"{{{literal}}}"
        value = prompt.metadata.get(column)
        if value is None:
            msg = (
                f"prompt {prompt.prompt_id} must have a value in the column '{column}', which "
                f"system.target.options.system_prompt names, got none; fill it in your file, draw "
                f"it with prompts.drawn_columns, or write {{{{{column}}}}} for a text in braces"
            )
            raise DataError(msg)
        return spelled(str(value))

    return _SLOT.sub(value_of, text)
