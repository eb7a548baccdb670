import json

import pytest
from calibrated_judge import calibration
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.records.calibration import read_calibration, version_digest, write_calibration


def test_a_record_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "calibration.json"
    write_calibration(calibration(), path)
    found = read_calibration(path)

    assert calibration().confusion == found.confusion
    # NaN is not equal to itself, and null in the file.
    assert repr(calibration()) == repr(found)
    assert json.loads(path.read_text())["recall"] == {"value": 0.8, "low": 0.7, "high": 0.9}
    assert "NaN" not in path.read_text()


def test_the_file_is_named_after_the_judges_version():
    names = {calibration(judge=judge).path.name for judge in ("a judge 1.0", "a judge 1.1")}

    assert 2 == len(names)
    assert f"{version_digest('a judge 1.0')}.json" in names
    assert "reports/calibration" == calibration().path.parent.as_posix()


@each_row("content", ["{}", "[]", "no json", '{"judge": 5}', None])
def test_another_file_is_refused_in_one_line(content, tmp_path):
    path = tmp_path / "evaluation.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        read_calibration(path)

    assert (
        f"evaluation.calibration must name what 'astra judge-check' wrote, got {path}, which is "
        "not; name a file of reports/calibration"
    ) == str(caught.value)
