from concurrent.futures import ThreadPoolExecutor

import pytest
from found_by_hand import finding

from astra_core.errors import ConfigurationError, DataError
from astra_core.files import read_json, write_json
from astra_core.metrics.statistics import Interval
from tasks.findings.labels import (
    corrected_by_people,
    held_share,
    newest_label,
    read_labels,
    write_label,
)


def test_each_person_has_one_label_and_the_newest_counts(tmp_path, monkeypatch):
    days = iter("132")
    monkeypatch.setattr("tasks.findings.labels._now", lambda: f"2026-01-0{next(days)}")
    write_label("a", "confirmed", by="Ann", archive=tmp_path)
    write_label("a", "false_positive", by="Bob", archive=tmp_path)
    write_label("a", "confirmed", by="Ann", archive=tmp_path)
    (found,) = read_labels(tmp_path).values()

    assert ("false_positive", "Bob") == (found.label, found.by)
    assert 2 == len(list(tmp_path.glob("labels/a/*.json")))


def test_a_label_must_be_one_of_two_and_somebodys(tmp_path):
    with pytest.raises(ConfigurationError, match="confirmed or false_positive, got 'yes'"):
        write_label("a", "yes", by="Ann", archive=tmp_path)
    with pytest.raises(ConfigurationError, match="--by must name the person"):
        write_label("a", "confirmed", by=" ", archive=tmp_path)


def test_the_newest_label_of_a_family_counts_within_one_second_too(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: write_label("b", "confirmed", by="Ann", archive=tmp_path), "1234"))
    write_label("a", "false_positive", by="Ann", archive=tmp_path)
    labels = read_labels(tmp_path)

    assert labels["a"] == newest_label(finding(finding_id="c", others=("a", "b")), labels)
    assert labels["b"] == newest_label(finding(finding_id="b"), labels)
    assert newest_label(finding(finding_id="c"), labels) is None


@pytest.mark.parametrize("broken", [{"label": "yes"}, {"at": 3}, {"by": None}, {"more": ""}])
def test_a_broken_label_is_told_with_its_name(tmp_path, broken):
    write_label("a", "confirmed", by="Ann", archive=tmp_path)
    (path,) = tmp_path.glob("labels/a/*")
    write_json({**read_json(path), **broken}, path)
    with pytest.raises(DataError, match=f"{path} must hold a label, got "):
        read_labels(tmp_path)


def test_people_leave_the_share_that_they_confirmed(tmp_path):
    for number, label in enumerate(["confirmed"] * 3 + ["false_positive"]):
        write_label(str(number), label, by="Ann", archive=tmp_path)
    held, count = held_share([finding(finding_id=str(n)) for n in range(6)], read_labels(tmp_path))
    left = corrected_by_people(Interval(0.4, 0.3, 0.5), Interval(0.75, 0.5, 0.9))

    assert (4, 0.75) == (count, held.value)
    # Wilson's interval of 3 of 4.
    assert (0.301, 0.954) == (round(held.low, 3), round(held.high, 3))
    assert (0.3, 0.15, 0.45) == pytest.approx((left.value, left.low, left.high))
