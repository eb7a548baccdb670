import pytest

from astra_core.errors import ConfigurationError
from tasks.params.schema import Params
from tasks.params.sizes import check_sizes

WIDE = {"sampler": {"name": "tree", "options": {"tree_width": 100}}, "num_prompts": 10**6}


def test_as_many_prompts_as_there_are_count():
    """A number far above those of a file means all of them."""
    for prompts in ({"source": "file", "path": "x.csv"}, {"num_builtin": 200}):
        check_sizes(Params.read({"rollouts": WIDE, "prompts": prompts}, where=""))

    with pytest.raises(ConfigurationError, match=r"rollouts must ask .* got 5000 trees"):
        check_sizes(Params.read({"rollouts": WIDE}, where=""))
