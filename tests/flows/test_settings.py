import shutil
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from flows.settings import change_params, changed_params
from tasks.params.schema import read_params

ROOT = Path(__file__).parents[2]


@pytest.fixture
def params(tmp_path):
    return Path(shutil.copy(ROOT / "params.yaml", tmp_path))


def test_a_value_changes_and_every_comment_stays(params):
    before = params.read_text().splitlines()
    changes = change_params(["training.lr=1e-4"], params)
    after = params.read_text().splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]

    assert 1e-4 == read_params(params).training.lr
    assert ["training.lr: "] == [line[:13] for line in changes]
    assert changes[0].endswith("-> 1e-4")
    assert 1 == len(changed)
    assert changed[0][0].partition("#")[2] == changed[0][1].partition("#")[2]


def test_the_same_value_changes_nothing(params):
    before = params.read_bytes()

    assert [] == change_params(["seed=0"], params)
    assert before == params.read_bytes()


def test_a_section_that_is_null_is_opened(params):
    change_params(["models.reference.source=builtin"], params)

    assert "builtin" == read_params(params).models.reference.source


def test_null_is_written_as_null(params):
    change_params(["prompts.text_column=x", "training.max_grad_norm=null"], params)

    assert "max_grad_norm: null" in params.read_text()
    assert read_params(params).training.max_grad_norm is None


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("training.lrr=1", "training.lrr is not a known key; Did you mean 'lr'?"),
        ("training.lr=0", "training.lr: input should be greater than 0, got 0; see params.yaml"),
        ("training.lr", "--set must read section.key=value, got 'training.lr'"),
        ("training..lr=1", "--set must read section.key=value"),
        ("seed.x=1", "seed.x must lead to a value, got one value at 'seed'"),
        ("seed=[1", "value of seed must be plain YAML, got '[1'"),
        ("system.scorer.name=detoxfy", "detoxfy"),
        ("flow.timeouts_s={trainin: 5}", "flow.timeouts_s must name stages, got 'trainin'"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_written(params, assignment, message):
    before = params.read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        change_params(["training.batch_size=3", assignment], params)

    assert message in str(caught.value)
    assert before == params.read_bytes()


def test_without_a_file_the_way_out_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="run from the project's root"):
        change_params([], tmp_path / "params.yaml")


def test_values_for_one_command_leave_the_file_as_it_is(params):
    before = params.read_bytes()
    found = changed_params(["training.lr=0.5"], params, sections=("training",))

    assert 0.5 == found.training.lr
    assert before == params.read_bytes()


def test_a_section_that_the_command_does_not_read_is_refused(params):
    with pytest.raises(ConfigurationError, match="--set must change training here, got prompts"):
        changed_params(["prompts.source=file"], params, sections=("training",))
    with pytest.raises(ConfigurationError, match="trainin is not a known"):
        changed_params(["trainin.lr=1"], params, sections=("training",))
