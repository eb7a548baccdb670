"""The parts of every section of the configuration: strict values, and a plug-in by name."""

import json
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from astra_core.errors import ConfigurationError
from astra_core.errors.config import explain, refuse_huge_numbers
from astra_core.errors.exception_text import suggestion

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]
# Longer waits overflow the clocks of the system.
Seconds = Annotated[float, Field(gt=0.0, le=1e9)]
Pause = Annotated[float, Field(ge=0.0, le=1e9)]
_BUILT: ContextVar[type | None] = ContextVar("built", default=None)
"""The section whose own constructor is at work."""


def _in_type(value: Any, annotation: Any) -> Any:
    """The value in a type that JSON lacks, or a plain choice in one with more fields."""
    kinds = {get_origin(each) or each for each in (annotation, *get_args(annotation))}
    for kind in kinds:
        is_choice = type(value) is Choice and isinstance(kind, type) and issubclass(kind, Choice)
        if is_choice and kind is not Choice:
            return kind(**dict(value))
    if isinstance(value, list) and tuple in kinds:
        return tuple(value)
    return Path(value) if isinstance(value, str) and Path in kinds and str not in kinds else value


class Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __init__(self, /, **values: Any) -> None:
        """A section of these values; a list will do for a tuple, and text for a path.

        Raises:
            ConfigurationError: A key is unknown or missing, or a value has the wrong type or range.
        """
        section = type(self)
        for key in section.model_fields.keys() & values.keys():
            values[key] = _in_type(values[key], section.model_fields[key].annotation)
        try:
            super().__init__(**values)
        except ValidationError as error:
            if error.title != section.__name__:
                raise
            firsts = {str(each["loc"][0]): each["input"] for each in error.errors() if each["loc"]}
            record = {**firsts, **values}
            msg = explain(error, section, where=section.__qualname__, record=record)
            raise ConfigurationError(msg) from None

    # As in pydantic's own RootModel: what is read from JSON is not passed through the constructor.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __init_subclass__(cls, **more: Any) -> None:
        """Lets a constructor of one's own set what no later code may; see ``__setattr__``."""
        super().__init_subclass__(**more)
        if "__init__" in vars(cls):
            cls.__init__ = _building(cls.__init__)  # type: ignore[method-assign]

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses, with the way out; a constructor of one's own may set fields and attributes.

        An attribute that is no field of the class is not stored with a checkpoint.
        """
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        own = type(self).__name__
        if _BUILT.get() is type(self):
            self.__dict__[name] = self._check_field(name, value)
            self.__pydantic_fields_set__.add(name)
            return
        way = f"write '{name}: {type(value).__name__} = ...' in the body of the class"
        if name in type(self).model_fields:
            way = (
                f"give {name} to {own}(...) or super().__init__(...), or as a default in the class"
            )
        msg = f"{own}.{name} must be declared and set when {own} is built, got it set later; {way}"
        raise ConfigurationError(msg)

    def _check_field(self, name: str, value: Any) -> Any:
        """The value of a field of ours, checked with the others; any other as it is."""
        # The class itself is built by its own constructor, which may take other arguments.
        line = type(self).__mro__
        plain: Any = next(each for each in line if "__init__" not in vars(each) or each is Section)
        if name not in plain.model_fields:
            return value
        values = {field: getattr(self, field) for field in plain.model_fields}
        return getattr(plain(**{**values, name: value}), name)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values, which are not validated; a key that is not known is refused."""
        for key in sorted((update or {}).keys() - type(self).model_fields.keys()):
            hint = suggestion(key, type(self).model_fields, otherwise="see its class")
            msg = f"{type(self).__qualname__}.{key} is not a known key{hint}"
            raise ConfigurationError(msg)
        taken = {
            key: _in_type(value, type(self).model_fields[key].annotation)
            for key, value in (update or {}).items()
        }
        return super().model_copy(update=taken, deep=deep)

    @classmethod
    def read(cls, record: Any, *, where: str) -> Self:
        """The section that a plain record (from YAML or JSON) describes.

        ``where``: the name of the section in an error, for example ``training``.

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
            raise ConfigurationError(explain(error, cls, where=where, record=record)) from None


def _building(init: Callable[..., None]) -> Callable[..., None]:
    """A constructor that says in ``_BUILT`` whose it is while it is at work."""

    @wraps(init)
    def build(self: Section, *given: Any, **values: Any) -> None:
        around = _BUILT.set(type(self))
        try:
            init(self, *given, **values)
        finally:
            _BUILT.reset(around)

    return build


def refuse_unread(section: Section, *names: str, when: str) -> None:
    """Checks that these fields have their defaults, because nothing would read another value."""
    for name in names:
        if getattr(section, name) != type(section).model_fields[name].default:
            msg = f"{name} must be left out when {when}"
            raise ValueError(msg)


class Choice(Section):
    """A plug-in by name, import path ``package.module:Class`` or ``path/to/file.py:Class``.

    Without options the name is enough: ``adamw`` is ``{name: adamw}``. ``ipo`` is ``dpo`` with that
    loss.
    """

    name: str = Field(min_length=1, description="A built-in name, an import path or a file's.")
    options: dict[str, Any] = Field(default_factory=dict, description="Read by the plug-in itself.")

    @model_validator(mode="before")
    @classmethod
    def _of_a_word(cls, given: Any) -> Any:
        record: Any = {"name": given} if isinstance(given, str) else given
        is_ipo = isinstance(record, Mapping) and record.get("name") == "ipo"
        if is_ipo and isinstance(options := record.get("options", {}), Mapping):
            return {**record, "name": "dpo", "options": {"loss": "ipo", **options}}
        return record

    def options_for(self, plugin: type[Any]) -> Mapping[str, Any]:
        """The options that this plug-in's class is to read."""
        del plugin
        return self.options


class WeightedTarget(Choice):
    """One of several targets of a training."""

    weight: Positive = Field(1.0, description="Share of the trees led against it, before scaling.")
    label: str | None = Field(
        None, pattern=r"^\w[\w .-]{0,63}$", description="Its name in figures; null: its kind."
    )

    @property
    def called(self) -> str:
        """Its name in figures and records."""
        return self.label or self.name


def as_one_target(given: Any) -> Any:
    """A list of targets as the one target that is made of them; anything else as it is."""
    if not isinstance(given, list):
        return given
    return {"name": "mixture", "options": {"targets": given}}
