"""Numbers and prompts of duels; what came of them is told in test_decision."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_world import PARAMS

from astra_core.errors import ConfigurationError
from tasks.params.schema import PromotionConfiguration
from tasks.promotion.duels import DUEL_TAG, draw_with, interval_options, open_duel
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


@pytest.fixture
def client(in_memory):
    return connect()


def params(*, source="file", num_prompts=5, num_test=4, min_prompts=3):
    return PARAMS.model_copy(
        update={
            "prompts": PARAMS.prompts.model_copy(update={"source": source}),
            "evaluation": PARAMS.evaluation.model_copy(update={"num_prompts": num_test}),
            "promotion": PromotionConfiguration(num_prompts=num_prompts, min_prompts=min_prompts),
        }
    )


def write_test_split(count):
    path = Path("data/valid/test.parquet")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt_id": f"t{number:02d}", "text": f"why {number}"} for number in range(count)]
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_without_a_source_of_fresh_prompts_those_held_back_are_drawn(client):
    write_test_split(16)
    draw = draw_with(client, params())
    first, again, other = ([p.prompt_id for p in draw(number)] for number in (1, 1, 2))

    assert first == again != other
    assert 5 == len(set(first))
    # The first four are the evaluation's.
    assert not {f"t{number:02d}" for number in range(4)} & {*first, *other}


def test_too_few_held_back_are_an_error_with_a_way_out(client):
    write_test_split(6)

    with pytest.raises(ConfigurationError, match=r"leaves out, got 2; name a file as promotion"):
        draw_with(client, params())(1)


def test_a_generated_source_gives_every_duel_other_prompts(client):
    draw = draw_with(client, params(source="builtin", num_prompts=20))
    client.create_registered_model("attacker")
    first, again, other = (draw(number) for number in (1, 1, 2))

    assert 20 == len(first) == len(other)
    assert first == again
    shared = {prompt.text for prompt in first} & {prompt.text for prompt in other}
    assert len(shared) <= 2


def test_a_duel_keeps_its_number_until_the_opponent_changes(client):
    client.create_registered_model("attacker")
    version = client.create_model_version("attacker", "nowhere")

    numbers = [open_duel(client, version, name).number for name in ("3", "3", "4", "4")]

    assert [1, 1, 2, 2] == numbers
    client.delete_model_version("attacker", version.version)
    another = client.create_model_version("attacker", "nowhere")
    assert 3 == open_duel(client, another, "4").number
    assert "3" == client.get_model_version("attacker", another.version).tags[DUEL_TAG]


def test_the_interval_of_a_duel_is_made_as_the_evaluations():
    found = interval_options(PARAMS)

    assert (PARAMS.evaluation.num_resamples, PARAMS.evaluation.confidence) == (
        found["num_resamples"],
        found["confidence"],
    )
    assert PARAMS.training_seed == found["seed"]
