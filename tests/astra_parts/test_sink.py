import json
import math

import pytest
from each_row import each_row

from astra_core.config import Section
from astra_parts.sink import Recorder, Sink, SinkRun


class Kept(Sink):
    """Keeps what it is given; cannot tell later."""

    def __init__(self, options, *, run):
        super().__init__(options, run=run)
        self.given = []

    def write(self, figures, step):
        self.given.append((dict(figures), step))


class Knowing(Kept):
    """Can tell."""

    def recorded_figures(self):
        return [("train/loss", 1)]


def opened(folder, kind=Kept):
    sink = kind(Section(), run=SinkRun("k", folder, {}))
    return sink, Recorder(sink)


@each_row(
    ("name", "value"),
    [("step", 1), ("a/nan", math.nan), ("a/inf", math.inf), ("a/none", None), ("a/text", "x")],
)
def test_only_finite_figures_with_an_area_are_recorded(name, value, tmp_path):
    sink, recorder = opened(tmp_path)
    recorder.log_step({name: value}, 1)
    recorder.log_step({name: value, "a/b": 2}, 1)

    assert [({"a/b": 2.0}, 1)] == sink.given


def test_a_figure_of_a_step_is_recorded_once(tmp_path):
    sink, recorder = opened(tmp_path)
    recorder.log_step({"a/b": 1.0}, 1)
    recorder.log_step({"a/b": 1.0, "a/c": 2.0}, 1)
    recorder.log_step({"a/b": 1.0}, 2)

    assert [({"a/b": 1.0}, 1), ({"a/c": 2.0}, 1), ({"a/b": 1.0}, 2)] == sink.given


def test_a_sink_that_cannot_tell_is_given_nothing_twice_after_a_kill(tmp_path):
    _, killed = opened(tmp_path)
    killed.log_step({"a/b": 1.0, "a/c": 2.0}, 1)
    killed.log_step({"a/b": 1.0}, 2)
    with (tmp_path / "written.jsonl").open("a") as file:
        file.write('[3, ["a/')
    sink, resumed = opened(tmp_path)
    for step in (1, 2, 3):
        resumed.log_step({"a/b": 1.0, "a/c": 2.0}, step)

    assert [({"a/c": 2.0}, 2), ({"a/b": 1.0, "a/c": 2.0}, 3)] == sink.given


def test_what_it_is_given_is_noted_first(tmp_path):
    class Torn(Kept):
        def write(self, figures, step):
            lines = (self.run.folder / "written.jsonl").read_text().splitlines()
            assert [step, sorted(figures)] == json.loads(lines[-1])
            message = "torn"
            raise RuntimeError(message)

    _, recorder = opened(tmp_path, Torn)
    with pytest.raises(RuntimeError, match="torn"):
        recorder.log_step({"a/c": 2.0, "a/b": 1.0}, 1)


def test_a_sink_that_can_tell_is_asked(tmp_path):
    sink, recorder = opened(tmp_path, Knowing)
    recorder.log_step({"train/loss": 0.5, "a/b": 1.0}, 1)

    assert [({"a/b": 1.0}, 1)] == sink.given
    assert [] == list(tmp_path.iterdir())


def test_a_sink_need_not_end_nor_be_checked(tmp_path):
    sink, recorder = opened(tmp_path)
    recorder.finish("FAILED")

    assert type(sink).check() is None
