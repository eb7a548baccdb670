from astra_parts.testing import contracts


def test_every_contract_is_in_a_module_of_its_kind():
    for name in contracts.__all__:
        kind = name.removeprefix("check_")
        assert f"{contracts.__name__}.{kind}" == getattr(contracts, name).__module__
