import re

import pytest
from each_row import each_row

from benchmarks.__main__ import COMMANDS, MARKS, main, measured
from benchmarks.figures import Report
from benchmarks.shapes import GPT2_SMALL
from benchmarks.timing import Effort

pytestmark = [
    pytest.mark.filterwarnings("ignore")  # TRL's import warns about other libraries
]

SHORT = ("--shape", "small", "--repetitions", "1", "--plain-repetitions", "1", "--trees", "1")
QUICK = (*SHORT, "--threads", "1", "--skip-one-thread")


@pytest.mark.wide
def test_the_ratios_are_the_last_lines(capsys, tmp_path):
    status = main(["--only", "rollout", "update", *QUICK, "--markdown", str(tmp_path / "out.md")])
    text = capsys.readouterr().out

    assert status == 0
    patterns = ("rollout", "update", "update vs TRL", "update bf16")
    lines = text.splitlines()[-4:]
    for name, line in zip(patterns, lines, strict=True):
        assert re.fullmatch(rf"{name}: \d+\.\dx", line)
    assert text == (tmp_path / "out.md").read_text("utf-8")


@pytest.mark.wide
def test_a_page_keeps_what_stands_around_its_figures(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n", "utf-8")
    main(["--only", "trainer_overhead", *QUICK, "--markdown", str(page)])
    text = page.read_text("utf-8")

    assert text == f"before\n{MARKS[0]}\n{capsys.readouterr().out}{MARKS[1]}\nafter\n"
    assert "old" not in text


@pytest.mark.wide
def test_a_trainers_overhead_is_reported(capsys):
    assert main(["trainer_overhead", *QUICK]) == 0
    assert "| Trainer's own time, share of a step, small |" in capsys.readouterr().out


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param("small", marks=pytest.mark.real),
        pytest.param(GPT2_SMALL.name, marks=[pytest.mark.wide, pytest.mark.timeout(7200)]),
    ],
)
def test_every_measure_of_speed_has_its_figures(capsys, shape):
    main([*QUICK, "--shape", shape])  # the shape decides whether limits of time are kept
    text = capsys.readouterr()

    assert "error: " not in text.err
    for figure in (
        f"| Trainer's own time, share of a step, {shape} | ",
        f"| optimiser's update, share of a step, {shape} | ",
        "| rollout: share of the machine's limit | ",
        "| update fp32: share of the limit of fp32 products | ",
        "| fp32 matrix product | ",
        f"| decoding of {shape}: batch |",
        f"| training step of {shape} | share of time",
    ):
        assert figure in text.out
    assert "nan" not in text.out


def test_a_measure_that_fails_is_told_and_the_others_go_on(capsys):
    def fails(shape, effort):
        raise KeyError(shape.name)

    def works(shape, effort):
        return Report(ratios={shape.name: 1.0})

    found = measured({"one": fails, "two": works}, GPT2_SMALL, Effort())

    assert [works(GPT2_SMALL, Effort())] == list(found)
    assert "error: one failed with KeyError: " in capsys.readouterr().err


def test_a_measure_that_takes_minutes_has_options_of_its_own(capsys):
    for name in COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            main([name, "--help"])
        assert f"python -m benchmarks {name}" in capsys.readouterr().out


@each_row("arguments", [["--only", "nothing"], ["nothing"]])
def test_an_unknown_benchmark_is_refused(arguments):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
