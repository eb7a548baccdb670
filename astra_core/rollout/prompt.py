"""Prompts, the slots that their values fill, and the independent runs of each."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from astra_core.errors import ConfigurationError, DataError
from astra_core.rollout.metadata import Metadata, Scalar, prompt_id_of


@dataclass(frozen=True, slots=True)
class Prompt:
    """A seed that opens a conversation.

    Attributes:
        prompt_id: A hash of the text, and of the metadata's ``context`` if it has one.
        metadata: Further values such as ``category``; any mapping of plain values.
        run_id: The number of the independent run that it opens, from 0. Runs of a prompt share its
            id and draw different random numbers; see ``rollouts.runs_per_prompt``.
    """

    prompt_id: str
    text: str
    metadata: Mapping[str, Scalar] = Metadata()
    run_id: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.metadata, Metadata):
            object.__setattr__(self, "metadata", Metadata(self.metadata))

    @classmethod
    def of(cls, text: str, metadata: Mapping[str, Scalar] | None = None) -> Self:
        """The prompt with this text, under the id that the pipeline gives it."""
        return cls(prompt_id_of(text, metadata), text, Metadata(metadata))


def prompts_of(given: Sequence[Prompt | str]) -> tuple[Prompt, ...]:
    """The given prompts; a plain text becomes the prompt with that text.

    Raises ConfigurationError if it is one text rather than a list.
    """
    if isinstance(given, str):
        msg = f"prompts must be a list, got one text of {len(given)} characters; put it into [...]"
        raise ConfigurationError(msg)
    return tuple(own if isinstance(own, Prompt) else Prompt.of(own) for own in given)


def runs_of(prompts: Sequence[Prompt], count: int) -> tuple[Prompt, ...]:
    """Each prompt ``count`` times, once for each of its runs, the runs of a prompt together."""
    return tuple(replace(prompt, run_id=run_id) for prompt in prompts for run_id in range(count))


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
