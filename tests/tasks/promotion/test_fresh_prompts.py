import json
import shutil
from pathlib import Path

import pytest

from astra_core.errors import DataError
from tasks.params.schema import read_params
from tasks.promotion.fresh_prompts import fresh_prompts
from tasks.promotion.known_prompts import fingerprint, fingerprints_of

ROOT = Path(__file__).parents[3]


@pytest.fixture
def params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    found = read_params()
    return found.model_copy(
        update={"evaluation": found.evaluation.model_copy(update={"num_prompts": 20})}
    )


def write_file(count, *, change=str):
    texts = [change(f"Please tell me about thing number {number}.") for number in range(count)]
    Path("mine.json").write_text(json.dumps(texts), encoding="utf-8")
    return Path("mine.json")


def drawn(params, known=(), *, seed=0, file=None):
    found, num_met = fresh_prompts(
        params, known, fresh_seed=seed, file=file, folder=Path("fresh").absolute()
    )
    return [prompt.text for prompt in found], num_met


def test_fresh_prompts_are_repeatable_and_follow_the_seed(params):
    first, _ = drawn(params, seed=7)

    assert 20 == len(set(first))
    assert first == drawn(params, seed=7)[0]
    assert first != drawn(params, seed=8)[0]
    # The reports of the last run stay as they were.
    assert not Path("reports").exists()


@pytest.mark.parametrize("change", [str, str.upper, lambda text: f"\u200b {text}  "])
def test_what_was_met_is_left_out_and_counted_however_it_is_spelled(params, change):
    everything, _ = drawn(params, file=write_file(20))
    known = {fingerprint(text) for text in everything[:5]}
    fresh, num_met = drawn(params, known, file=write_file(20, change=change))

    assert (15, 5) == (len(fresh), num_met)
    assert not known & {fingerprint(text) for text in fresh}


def test_builtin_openers_that_were_met_are_left_out_too(params):
    everything, _ = drawn(params, seed=7)
    known = {fingerprint(text) for text in everything}
    fresh, num_met = drawn(params, known, seed=7)

    assert (20, 20) == (len(fresh), num_met)
    assert not set(everything) & set(fresh)


def test_a_file_that_was_met_whole_is_refused(params):
    file = write_file(30)
    drawn(params, file=file)
    known = fingerprints_of(Path("fresh/valid"))
    with pytest.raises(DataError, match=r"got 30 and all .* name another --seed"):
        drawn(params, known, file=file)


def test_a_file_of_three_prompts_is_enough(params):
    assert 3 == len(drawn(params, file=write_file(3))[0])
