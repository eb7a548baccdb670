import pytest
from outside_calls import outside_calls

from astra_core.errors import ConfigurationError
from astra_parts.sink import Recorder, SinkRun
from astra_parts.sinks.wandb import WandbSink
from astra_parts.testing import check_sink

pytest.importorskip("wandb", reason="the extra astra-red-team[wandb] is not installed")


def test_it_writes_files_and_asks_nobody(tmp_path):
    with outside_calls() as asked:
        sink = WandbSink(WandbSink.Options(), run=SinkRun("5f" * 32, tmp_path / "x", {"seed": 1}))
        recorder = Recorder(sink)
        recorder.log_step({"train/loss": 0.5}, 1)
        recorder.finish()

    assert [] == asked
    assert list((tmp_path / "x").glob("wandb/offline-run-*/*.wandb"))


def test_only_two_modes_are_known():
    with pytest.raises(ConfigurationError, match="mode"):
        WandbSink.Options.read({"mode": "shared"}, where="options")


def test_it_keeps_the_contract():
    check_sink("wandb")
