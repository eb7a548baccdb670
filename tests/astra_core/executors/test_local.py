from astra_core.testing import check_executor


def test_it_keeps_the_contract():
    check_executor("local")
