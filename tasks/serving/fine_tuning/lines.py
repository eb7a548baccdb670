"""The lines of a training file, checked one by one: examples to imitate, or preferences."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Method = Literal["supervised", "dpo"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrainingMessage(_Strict):
    """One message; an answer with the weight 0 is not learned."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str
    name: str | None = None
    weight: Literal[0, 1] | None = None


class _Answer(_Strict):
    role: Literal["assistant"]
    content: str = Field(min_length=1)


class _SupervisedLine(_Strict):
    messages: list[TrainingMessage] = Field(min_length=2)


class _Input(_Strict):
    messages: list[TrainingMessage] = Field(min_length=1)


class _Preference(_Strict):
    input: _Input
    preferred_output: list[_Answer] = Field(min_length=1, max_length=1)
    non_preferred_output: list[_Answer] = Field(min_length=1, max_length=1)


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A context and an answer to it; a preference also has a worse answer."""

    line: int
    context: tuple[dict[str, str], ...]
    answer: dict[str, str]
    worse: dict[str, str] | None = None


class FileError(ValueError):
    """A training file that cannot be used."""


def examples_of(content: bytes, method: Method) -> list[TrainingExample]:
    """The examples in a training file.

    Raises FileError if a line is wrong, or there is none; it names the line and quotes nothing.
    """
    found: list[TrainingExample] = []
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            found += _of_line(number, line, method)
    if not found:
        msg = "the training file must hold at least one example, got none"
        raise FileError(msg)
    return found


def _of_line(number: int, line: bytes, method: Method) -> Sequence[TrainingExample]:
    try:
        record = json.loads(line)
        json.dumps(record, ensure_ascii=False).encode()  # raises where it holds half a character
        return _preference(number, record) if method == "dpo" else _answers(number, record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        msg = f"line {number} of the training file: {place or 'record'}: {first['msg']}"
    except (ValueError, RecursionError) as error:
        own = str(error) if isinstance(error, FileError) else "must be JSON in UTF-8"
        msg = f"line {number} of the training file: {own}"
    raise FileError(msg)


def _preference(number: int, record: Any) -> list[TrainingExample]:
    read = _Preference.model_validate(record)
    context = tuple(map(_message_of, read.input.messages))
    good, bad = read.preferred_output[0], read.non_preferred_output[0]
    if good.content == bad.content:
        msg = "preferred_output and non_preferred_output must differ"
        raise FileError(msg)
    return [TrainingExample(number, context, _message_of(good), _message_of(bad))]


def _message_of(message: TrainingMessage | _Answer) -> dict[str, str]:
    """The message as a chat template reads it."""
    return {"role": message.role, "content": message.content}


def _answers(number: int, record: Any) -> list[TrainingExample]:
    """An example for every answer of the assistant with a weight, after the messages before it."""
    said = _SupervisedLine.model_validate(record).messages
    found = [
        TrainingExample(number, tuple(map(_message_of, said[:place])), _message_of(each))
        for place, each in enumerate(said)
        if each.role == "assistant" and each.weight != 0 and place and each.content
    ]
    if not found:
        msg = "messages must have an answer of the assistant after another message"
        raise FileError(msg)
    return found
