import os
from collections import Counter

import pytest

from astra_parts.sink import Recorder, SinkRun
from astra_parts.sinks.tensorboard import TensorBoardSink
from astra_parts.testing import check_sink

pytest.importorskip("tensorboard", reason="the extra astra-red-team[tensorboard] is not installed")


def opened(folder):
    return TensorBoardSink(TensorBoardSink.Options(), run=SinkRun("k", folder, {}))


def test_every_figure_is_a_scalar(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recorder = Recorder(opened(tmp_path))
    for step in (1, 2):
        recorder.log_step({"train/loss": 0.5 / step}, step)
    recorder.finish()
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("train/loss")

    assert [(1, 0.5), (2, 0.25)] == [(event.step, event.value) for event in events]


def test_a_record_that_a_kill_has_cut_is_written_again(tmp_path):
    killed = Recorder(opened(tmp_path))
    for step in (1, 2, 3):
        killed.log_step({"train/loss": 0.5, "a/b": 1.0}, step)
    (path,) = tmp_path.iterdir()
    os.truncate(path, path.stat().st_size - 3)
    resumed = Recorder(opened(tmp_path))
    for step in (1, 2, 3, 4):
        resumed.log_step({"train/loss": 0.5, "a/b": 1.0}, step)
    resumed.finish()
    written = Counter(opened(tmp_path).recorded_figures())

    assert {("train/loss", 4), ("a/b", 3), ("a/b", 1)} <= written.keys()
    assert (8, {1}) == (len(written), set(written.values()))


def test_it_keeps_the_contract():
    check_sink("tensorboard")
