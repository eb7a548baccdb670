import pytest

from astra_core.config import Section as Published
from astra_core.errors import ConfigurationError
from astra_core.sections import Choice, Section


def test_a_section_is_strict_frozen_and_knows_its_keys():
    found = Choice.read({"name": "dpo", "options": {"margin": 0.5}}, where="algorithm")

    assert ("dpo", {"margin": 0.5}) == (found.name, found.options)
    with pytest.raises(ConfigurationError, match=r"algorithm\.nam is not a known key"):
        Choice.read({"nam": "dpo"}, where="algorithm")
    with pytest.raises(ConfigurationError, match=r"algorithm\.name"):
        Choice.read({"name": 3}, where="algorithm")


def test_the_configuration_publishes_it():
    assert Published is Section
