from checked_functions import offered

import astra_core.rollout
from astra_core.rollout import graph, prompt, turn


def test_every_kind_of_part_is_imported_from_the_package():
    made = {
        name
        for module in (graph, prompt, turn)
        for name, own in vars(module).items()
        if getattr(own, "__module__", "") == module.__name__
    }

    assert made | {"FinishReason", "Path"} == offered(astra_core.rollout)
