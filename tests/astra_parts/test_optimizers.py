import pytest

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import build


def test_nesterov_momentum_needs_momentum():
    with pytest.raises(ConfigurationError, match="momentum"):
        build("optimizer", Choice(name="sgd", options={"nesterov": True}))
