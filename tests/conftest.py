"""One thread: two cores are shared, and a second thread that waits turns seconds into minutes."""

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    """With workers (``-n 2``), the tests of a file stay together: fixtures are made once."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
