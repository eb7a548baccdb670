import re

import pytest
from each_row import each_row

from benchmarks.__main__ import COMMANDS, MARKS, main

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # TRL's import warns about other libraries
]

SHORT = ("--shape", "small", "--repetitions", "1", "--plain-repetitions", "1", "--trees", "1")
QUICK = (*SHORT, "--threads", "1", "--skip-one-thread")


@pytest.mark.real
def test_the_ratios_are_the_last_lines(capsys, tmp_path):
    status = main(["--only", "rollout", "update", *QUICK, "--markdown", str(tmp_path / "out.md")])
    text = capsys.readouterr().out

    assert status == 0
    patterns = ("rollout", "update", "update vs TRL", "update bf16")
    lines = text.splitlines()[-4:]
    for name, line in zip(patterns, lines, strict=True):
        assert re.fullmatch(rf"{name}: \d+\.\dx", line)
    assert text == (tmp_path / "out.md").read_text("utf-8")


@pytest.mark.real
def test_a_page_keeps_what_stands_around_its_figures(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n", "utf-8")
    main(["--only", "trainer_overhead", *QUICK, "--markdown", str(page)])
    text = page.read_text("utf-8")

    assert text == f"before\n{MARKS[0]}\n{capsys.readouterr().out}{MARKS[1]}\nafter\n"
    assert "old" not in text


@pytest.mark.real
def test_a_trainers_overhead_is_reported(capsys):
    assert main(["trainer_overhead", *QUICK]) == 0
    assert "| Trainer's own time, share of a step, small |" in capsys.readouterr().out


def test_a_measure_that_takes_minutes_has_options_of_its_own(capsys):
    for name in COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        assert f"python -m benchmarks {name}" in capsys.readouterr().out


@each_row("arguments", [["--only", "nothing"], ["nothing"]])
def test_an_unknown_benchmark_is_refused(arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
