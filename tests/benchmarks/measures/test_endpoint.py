import pytest
from hostile_server import hostile_server

from benchmarks.measures.endpoint import Rates, main


@pytest.mark.wide
def test_replies_per_second_stand_beside_those_of_a_bare_client(capsys):
    main(["--replies", "16", "--repetitions", "1", "--milliseconds", "5"])
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[4:]]

    assert ["1", "8", "32"] == [row[1].strip() for row in rows]
    assert ["200", "1600", "1600"] == [row[5].strip() for row in rows]
    assert all(float(row[2]) > 0.0 and float(row[3]) > 0.0 for row in rows)


@pytest.mark.wide
def test_a_server_of_ones_own_is_asked_by_both_in_turn():
    with hostile_server() as server:
        main(["--replies", "4", "--repetitions", "1", "--url", server.url, "--model", "tiny"])

        asked = [bool(headers.get("Idempotency-Key")) for _, headers in server.requests]
    # Ours asks once before it is timed.
    assert ([True] * 5 + [False] * 4) * 3 == asked


def test_the_share_is_the_median_of_pairs():
    assert 0.5 == Rates(8, ours=(1.0, 5.0, 9.0), bare=(2.0, 10.0, 9.0)).share
