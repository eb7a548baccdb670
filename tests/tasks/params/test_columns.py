import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params.columns import check_columns, check_sizes, known_columns
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import Params

TARGET = {"name": "command", "options": {"program": ["x"], "system_prompt": "Never say {code}."}}
SECRET = {"name": "secret", "options": {"column": "code"}}
BOTH = {"own": {"judge": SECRET}, "rude": {"judge": {"name": "profanity"}}}
ENSEMBLE = {"name": "ensemble", "options": {"judges": BOTH}}


def params_of(tmp_path, *, drawn=(), columns="text,level", **sections):
    path = tmp_path / "prompts.csv"
    path.write_text(f"{columns}\nwhy now,so\n", "utf-8")
    prompts = {"source": "file", "path": str(path), "drawn_columns": {name: {} for name in drawn}}
    return Params.read({"prompts": prompts, **sections}, where="params")


@each_row(
    ("key", "sections"),
    [
        ("system.target.options.system_prompt", {"system": {"target": TARGET}}),
        (
            "evaluation.transfer.other.options.system_prompt",
            {
                "system": {"target": {**TARGET, "options": {"program": ["x"]}}},
                "evaluation": {"transfer": {"other": {"options": TARGET["options"]}}},
            },
        ),
        ("system.scorer.options.column", {"system": {"scorer": SECRET}}),
        ("evaluation.second_judge.options.column", {"evaluation": {"second_judge": SECRET}}),
        ("system.scorer.options.judges.own.judge.options.column", {"system": {"scorer": ENSEMBLE}}),
    ],
)
def test_a_column_that_is_read_must_be_in_the_file_or_drawn(tmp_path, key, sections):
    with pytest.raises(ConfigurationError, match=rf"^{key} must .* 'code' besides \['level'\]"):
        check_columns(params_of(tmp_path, **sections))
    check_columns(params_of(tmp_path, drawn=["code"], **sections))
    check_columns(params_of(tmp_path, columns="text,code", **sections))


def test_the_columns_of_the_hub_are_known_to_the_stage_alone():
    hub = {"source": "hub", "dataset": "lab/prompts", "revision": "0" * 40}

    assert known_columns(PromptsConfiguration.read(hub, where="prompts")) is None
    assert frozenset({"category"}) == known_columns(PromptsConfiguration())


WIDE = {"sampler": {"name": "tree", "options": {"tree_width": 100}}, "num_prompts": 10**6}


def test_as_many_prompts_as_there_are_count():
    """A number far above those of a file means all of them."""
    for prompts in ({"source": "file", "path": "x.csv"}, {"num_builtin": 200}):
        check_sizes(Params.read({"rollouts": WIDE, "prompts": prompts}, where=""))

    with pytest.raises(ConfigurationError, match=r"rollouts must ask .* got 5000 trees"):
        check_sizes(Params.read({"rollouts": WIDE}, where=""))
