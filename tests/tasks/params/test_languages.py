import pytest

from astra_core.errors import ConfigurationError
from tasks.params.languages import SCRIPTS
from tasks.params.schema import ValidationConfiguration


def test_each_language_has_its_scripts():
    assert {"LATIN"} == SCRIPTS["en"]
    assert {"CJK", "HIRAGANA", "KATAKANA"} == SCRIPTS["ja"]
    assert {"CYRILLIC", "LATIN"} == SCRIPTS["sr"]


def test_a_language_that_is_not_known_is_one_line():
    assert ("de", "en") == ValidationConfiguration(languages=["de", "en"]).languages
    with pytest.raises(
        ConfigurationError, match=r"languages\.0: must be a code of ISO 639-1 such as"
    ):
        ValidationConfiguration(languages=["english"])
