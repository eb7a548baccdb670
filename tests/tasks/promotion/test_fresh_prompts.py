import json
import shutil
from pathlib import Path

import pytest

from astra_core.errors import DataError
from tasks.params.schema import read_params
from tasks.promotion.fresh_prompts import fresh_prompts
from tasks.promotion.known_prompts import fingerprint, fingerprints_of

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


@pytest.fixture
def params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    found = read_params()
    return found.model_copy(
        update={"evaluation": found.evaluation.model_copy(update={"num_prompts": 20})}
    )


def write_file(count):
    texts = [f"Please tell me about thing number {number}." for number in range(count)]
    Path("mine.json").write_text(json.dumps(texts), encoding="utf-8")
    return Path("mine.json")


def drawn(params, known=(), *, seed=0, file=None):
    found, num_met = fresh_prompts(
        params, known, fresh_seed=seed, file=file, folder=Path("fresh").absolute()
    )
    return [prompt.text for prompt in found], num_met


def test_builtin_openers_are_fresh_and_repeatable_and_follow_the_seed(params):
    first, _ = drawn(params, seed=7)
    known = {fingerprint(text) for text in first}
    others, num_met = drawn(params, known, seed=7)

    assert 20 == len(set(first))
    assert (20, 20) == (len(others), num_met)
    assert not set(first) & set(others)
    assert first == drawn(params, seed=7)[0]
    assert first != drawn(params, seed=8)[0]
    # The reports of the last run stay as they were.
    assert not Path("reports").exists()


def test_what_was_met_is_left_out_and_counted_however_it_is_spelled(params):
    met = ["Please tell me about thing number 1.", "Please tell me about thing number 2."]
    spelled = ["\u200b please TELL me about thing number 1.  ", met[1].upper(), "And of a third?"]
    Path("mine.json").write_text(json.dumps(spelled), encoding="utf-8")
    fresh, num_met = drawn(params, {fingerprint(text) for text in met}, file=Path("mine.json"))

    assert (["And of a third?"], 2) == (fresh, num_met)


def test_a_file_of_three_is_enough_and_refused_when_met_whole(params):
    file = write_file(3)
    assert 3 == len(drawn(params, file=file)[0])
    known = fingerprints_of(Path("fresh/valid"))
    with pytest.raises(DataError, match=r"got 3 and all .* name another --seed"):
        drawn(params, known, file=file)
