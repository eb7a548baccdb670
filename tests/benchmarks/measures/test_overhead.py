import subprocess

import pytest

from benchmarks.measures.overhead import main, spent


@pytest.mark.wide
def test_what_a_process_and_its_children_compute_counts_and_waiting_does_not(tmp_path):
    busy = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"

    computing = spent(("-c", child), tmp_path).processor
    assert computing >= 0.3
    idle = spent(("-c", "import time; time.sleep(0.5)"), tmp_path)
    assert idle.processor < computing
    assert idle.wall >= 0.5


@pytest.mark.wide
def test_a_part_that_fails_is_reported(tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        spent(("-c", "raise SystemExit(1)"), tmp_path)


@pytest.mark.wide
def test_the_table_has_a_row_for_each_part(capsys):
    assert 0 == main(["--only", "Python", "--repetitions", "1"])
    head, _, row = capsys.readouterr().out.splitlines()

    assert head.startswith("| part | processor seconds |")
    assert row.startswith("| Python | 0.")
