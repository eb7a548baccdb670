from astra_parts.testing import check_executor


def test_it_keeps_the_contract():
    check_executor("local")
