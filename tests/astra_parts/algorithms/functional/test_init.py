from checked_functions import offered

from astra_core.algorithms import functional as core
from astra_parts.algorithms import functional


def test_no_name_is_offered_by_both_packages():
    assert set() == offered(core) & offered(functional)
