"""What every section of the configuration is made of: strict values, and a plug-in by name."""

import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from astra_core.errors import ConfigurationError
from astra_core.errors.config import explained, refuse_huge_numbers

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses, with the way out: fields are declared in the class and set when it is built."""
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        own = type(self).__name__
        way = f"write '{name}: {type(value).__name__} = ...' in the body of the class"
        if name in type(self).model_fields:
            way = (
                f"give {name} to {own}(...) or super().__init__(...), or as a default in the class"
            )
        msg = f"{own}.{name} must be declared and set when {own} is built, got it set later; {way}"
        raise ConfigurationError(msg)

    @classmethod
    def read(cls, record: Any, *, where: str) -> Self:
        """The section that a plain record (from YAML or JSON) describes.

        Args:
            record: Mappings, lists, text, numbers, booleans and nulls.
            where: What to call the section in an error, for example ``training``.

        Raises:
            ConfigurationError: A key is unknown or missing, or a value has the wrong type or range.
        """
        refuse_huge_numbers(record, where)
        try:
            # Strict JSON mode: only lists become tuples and text becomes paths.
            return cls.model_validate_json(json.dumps(record, allow_nan=True))
        except TypeError as error:
            msg = f"{where} must hold plain values, got: {error}; put quotes around dates"
            raise ConfigurationError(msg.lstrip()) from error
        except ValidationError as error:
            raise ConfigurationError(explained(error, cls, where=where, record=record)) from None


class Choice(Section):
    """A plug-in by name, import path ``package.module:Class`` or ``path/to/file.py:Class``.

    Without options a word is enough: ``adamw`` is ``{name: adamw}``.
    """

    name: str = Field(min_length=1, description="A built-in name, an import path or a file's.")
    options: dict[str, Any] = Field(default_factory=dict, description="Read by the plug-in itself.")

    @model_validator(mode="before")
    @classmethod
    def _of_a_word(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given
