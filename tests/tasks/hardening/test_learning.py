import sys
from pathlib import Path

import pytest
from hardening_world import QUICK, make_hardening_world

from astra_core.models.language_model import LanguageModel
from astra_core.models.pretrained import weights_digest
from tasks.hardening.learning import train_target
from tasks.hardening.pairs import Pair
from tasks.hardening.places import HardeningPlace

PAIRS = [Pair("f", "so they said", None, ("you are bad",), "fine", "bad")]


@pytest.fixture
def place(tmp_path, monkeypatch):
    return make_hardening_world(tmp_path, monkeypatch)


def changed(place, folder, **changes):
    hardening = QUICK.hardening.model_copy(update=changes)
    return HardeningPlace(Path(folder), QUICK.model_copy(update={"hardening": hardening}))


def preference(folder):
    """How much likelier the better answer is, in nats."""
    model = LanguageModel.load(folder, separator=None)
    context = tuple(
        token
        for text in ("so they said", "you are bad")
        for token in model.closed(model.encode(text))
    )
    answers = [model.closed(model.encode(text)) for text in ("fine", "bad")]
    better, worse = model.continuation_logprobs([(*model.opening_ids, *context)] * 2, answers)
    return sum(better) - sum(worse)


def test_the_better_answer_becomes_likelier_where_the_target_reads_it(place):
    own = changed(place, "here", lr=1e-2)
    folder = train_target(1, PAIRS, own)

    assert preference(folder) > preference(place.target(0)) + 0.1
    assert [] == [path.name for path in Path("here").iterdir() if path.name != "target_1"]


def test_an_adapter_is_added_to_the_weights(place):
    lora = {"rank": 2, "alpha": 4}
    hardening = type(QUICK.hardening).read({"training_steps": 1, "lora": lora}, where="hardening")
    own = HardeningPlace(Path("there"), QUICK.model_copy(update={"hardening": hardening}))
    folder = train_target(1, PAIRS, own)

    assert weights_digest(place.target(0)) != weights_digest(folder)
    assert not (folder / "adapter_config.json").exists()


def test_a_target_that_is_there_is_not_trained_again(place):
    place.target(1).mkdir(parents=True)

    assert place.target(1) == train_target(1, [], place)


@pytest.mark.real
def test_a_training_that_was_killed_ends_with_the_same_bytes(place, monkeypatch):
    whole, cut = (changed(place, name, training_steps=3) for name in ("whole", "cut"))
    train_target(1, PAIRS, whole)
    save = LanguageModel.save
    monkeypatch.setattr(LanguageModel, "save", lambda *_: sys.exit(137))
    with pytest.raises(SystemExit):
        train_target(1, PAIRS, cut)
    monkeypatch.setattr(LanguageModel, "save", save)
    train_target(1, PAIRS, cut)

    assert weights_digest(whole.target(1)) == weights_digest(cut.target(1))
