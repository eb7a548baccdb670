import inspect

from checked_functions import offered
from each_row import each_row

from astra_core.registry import BUILT_INS
from astra_parts import testing
from astra_parts.testing import tiny


def test_what_plugins_are_tested_with_is_offered_under_one_name():
    defined = {
        name
        for name, part in vars(tiny).items()
        if inspect.isfunction(part)
        and part.__module__.startswith(tiny.__name__)
        and not name.startswith("_")
    }

    assert defined
    assert defined <= offered(testing)
    assert all(getattr(testing, name) is getattr(tiny, name) for name in defined)


@each_row("name", sorted(offered(testing)))
def test_every_name_is_there_and_says_what_it_is_for(name):
    assert inspect.getdoc(getattr(testing, name))


def test_a_contract_is_of_a_kind_of_plugin():
    kinds = {name.removeprefix("check_") for name in offered(testing) if name.startswith("check_")}

    # A judge is named where a scorer is.
    assert set(BUILT_INS) | {"judge"} == kinds
