import pytest

from astra_core.bodies import TooLongError, read_body


def test_a_body_is_read_up_to_its_limit_and_no_further():
    asked = []

    def parts():
        for part in (b"ab", b"cd", b"ef"):
            asked.append(part)
            yield part

    assert b"abcdef" == read_body(parts(), most=6)
    asked.clear()
    with pytest.raises(TooLongError, match="longer than 3 bytes"):
        read_body(parts(), most=3)
    assert [b"ab", b"cd"] == asked
