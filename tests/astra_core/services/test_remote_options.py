import pytest

from astra_core.errors import ConfigurationError
from astra_core.services.remote_options import RemoteOptions

ADDRESS = {"address": "http://127.0.0.1:1", "base_model": "tiny"}


def test_a_limit_on_cost_needs_prices():
    with pytest.raises(ConfigurationError, match="prices must be given where max_cost is"):
        RemoteOptions.read({**ADDRESS, "max_cost": 1.0}, where="options")


def test_by_default_a_failed_draw_is_asked_for_again_and_nothing_limits_the_cost():
    options = RemoteOptions.read(ADDRESS, where="options")

    assert ("retry", 3) == (options.on_error, options.retries)
    assert (None, None, True) == (options.max_tokens, options.max_cost, options.export)
