from dataclasses import replace

from astra_core.metrics.statistics import Interval
from tasks.records.baselines import (
    BASELINES,
    HEAD,
    TRAINED,
    BaselineRecord,
    BaselineRow,
    baselines_of,
)
from tasks.records.reports import write_record

SPAN = Interval(0.5, 0.4, 0.6)
ROWS = (
    BaselineRow(TRAINED, 1200, 1190, SPAN, SPAN, 33.3),
    BaselineRow("goat", 1200, 1200, SPAN, SPAN, None, gain=SPAN, model_calls=600),
)
RECORD = BaselineRecord("key", "digest", 100, 3, 2, 2, ROWS, {"pair": "why", "crescendo": "why"})


def test_only_the_examination_of_this_attacker_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert baselines_of("digest", "key") is None
    write_record(RECORD, BASELINES)

    assert RECORD == baselines_of("digest", "key")
    assert baselines_of("other", "key") is None
    assert baselines_of("digest", "other") is None
    BASELINES.write_text("[]")
    assert baselines_of("digest", "key") is None


def test_a_row_and_what_is_missing_are_told():
    cells = ("50.0% [40.0%, 60.0%]",) * 2

    assert (TRAINED, *cells, "33", "", "1,200, 1,190 judged") == ROWS[0].cells()
    gain = "+50.0 points [+40.0, +60.0]"
    assert ("goat", *cells, "", gain, "1,200, 1,200 judged") == ROWS[1].cells()
    assert len(HEAD) == len(ROWS[0].cells())
    told, missing = RECORD.notes()
    assert told.startswith("12 replies of the target on each of 100 prompts")
    assert "without pair, crescendo: why" == missing
    assert 1 == len(replace(RECORD, left_out={}).notes())
