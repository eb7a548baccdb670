import os
import time
from pathlib import Path

import pytest
from registry_project import RUN_KEY

from tasks.tracking.database.leftovers import leftovers, needed_keys, remove
from tasks.tracking.errors import TrackingError
from tasks.tracking.store import connect

pytestmark = pytest.mark.real

DAY_S = 86_400.0


@pytest.fixture
def project(in_memory):
    """Runs of 30 and 1 days, of which one made the champion and one a version without alias."""
    project = in_memory
    client = connect()
    client.create_registered_model("attacker")
    for key in ("champion", "nobody"):
        tags = {"astra.run_key": f"{key:0<64}"}
        client.create_model_version("attacker", source=str(project), tags=tags)
    client.set_registered_model_alias("attacker", "champion", "1")
    for key, days in (("champion", 30), ("nobody", 30), ("unfinished", 1)):
        file = Path(f"runs/{key:0<16}/checkpoints/state")
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(1000))
        written = time.time() - days * DAY_S
        for path in (file, *list(file.parents)[:2]):
            os.utime(path, (written, written))
    return project


def test_what_a_champion_came_from_and_what_is_recent_stays(project):
    (found,) = leftovers("attacker", min_days=14.0)

    assert Path("runs/nobody0000000000") == found.path
    assert found.num_bytes >= 1000
    assert round(found.days) == 30
    assert {f"{'champion':0<64}"} == needed_keys("attacker")
    assert {"nobody", "unfinished"} == {
        each.path.name.rstrip("0") for each in leftovers("attacker", min_days=0.0)
    }


def test_a_champion_that_registration_made_keeps_its_training(candidate_in_memory):
    connect().set_registered_model_alias("attacker", "champion", "1")
    for key in (RUN_KEY[:16], "0" * 16):
        Path(f"runs/{key}").mkdir(parents=True)

    assert {RUN_KEY} == needed_keys("attacker")
    assert [Path(f"runs/{'0' * 16}")] == [each.path for each in leftovers("attacker", min_days=0.0)]


def test_a_version_whose_run_is_gone_stops_the_search(project):
    connect().create_model_version("attacker", source=str(project), run_id="0" * 32)
    connect().set_registered_model_alias("attacker", "previous", "3")

    with pytest.raises(TrackingError):
        leftovers("attacker", min_days=0.0)


def test_only_what_is_listed_goes(project):
    remove(leftovers("attacker", min_days=14.0))

    assert ["champion00000000", "unfinished000000"] == sorted(
        path.name for path in Path("runs").iterdir()
    )
