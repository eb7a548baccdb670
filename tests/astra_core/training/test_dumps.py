from dataclasses import dataclass

import pytest
import torch
from tiny_training import configured, trainer_of

from astra_core.errors import ConfigurationError
from astra_core.training.dumps import batch_tensors
from astra_parts.dumps import read_dump


@dataclass
class Rows:
    ids: torch.Tensor
    count: int = 3


@dataclass
class Batch:
    rows: Rows
    extra: dict[str, torch.Tensor]


def test_tensors_of_a_batch_are_named_by_where_they_are():
    batch = Batch(Rows(torch.ones(2)), {"a": torch.zeros(1)})

    assert ["batch/0/rows.ids", "batch/0/extra.a"] == list(batch_tensors([batch]))


def dump_of(folder, **changes):
    trainer = trainer_of(
        configured(dump_steps=[2], training_steps=1, batch_size=1, evaluate="none", **changes),
        folder,
    )
    trainer.train()
    return folder / "dumps" / "step_000002"


def test_only_the_chosen_updates_are_dumped(tmp_path):
    dump = dump_of(tmp_path)

    assert [dump] == list(dump.parent.iterdir())
    kinds = {name.partition("/")[0] for name in read_dump(dump)}
    assert {"batch", "gradient", "weight"} == kinds


def test_a_run_without_a_store_has_nowhere_to_dump():
    with pytest.raises(ConfigurationError, match=r"dump_steps must be empty"):
        trainer_of(configured(dump_steps=[1]))
