"""The value after ``--set section.key=``: plain YAML, or words as a person writes them."""

import re
from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

from ruamel.yaml import YAML

from astra_core.config import Section
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import excerpt
from tasks.params.schema import Params
from tasks.params.yaml_files import check_yaml, load_yaml

# More than one word before a colon: the keys of params.yaml are single words.
_SENTENCE = re.compile(r"\w[^\n:]* [^\n:]*(: |\n)[^\x00-\x09\x0b-\x1f]*")


def read_value(key: str, written: str, yaml: YAML) -> Any:
    """What is written for a key; a text with a colon or several lines needs no quotes.

    Raises ConfigurationError if it is neither YAML nor a text.
    """
    words = written.strip()
    if not words:
        return ""
    is_words = _takes_only_text(key) or _SENTENCE.fullmatch(words) is not None
    try:
        check_yaml(written, subject=key, way_out="")
        load_yaml(written, subject=key, way_out="")
    except ConfigurationError:
        if is_words and words.replace("\n", "").isprintable():
            return words
        msg = f"value of {key} must be plain YAML, got {excerpt(written)}; put quotes around a text"
        raise ConfigurationError(msg) from None
    found = yaml.load(written)
    # YAML makes a mapping of a colon, drops what follows a number sign and joins lines.
    is_split = is_words and isinstance(found, Mapping | list)
    is_bare = isinstance(found, str) and words[0].isalnum()
    return words if is_split or (is_bare and (" #" in words or "\n" in words)) else found


def _takes_only_text(key: str) -> bool:
    """Whether the value of a key is a text or null, as far as the sections say so."""
    kind: Any = Params
    for part in key.strip().split("."):
        sections = [own for own in (kind, *get_args(kind)) if _is_section(own)]
        field = sections[0].model_fields.get(part) if sections else None
        if field is None:
            return False
        kind = field.annotation
    return str in {kind, *get_args(kind)} <= {kind, str, NoneType}


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
