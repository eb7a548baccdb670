import sys
from pathlib import Path

import pytest
from hardening_world import QUICK, make_hardening_world

from astra_core.config import LoraConfiguration, TrainingConfiguration
from astra_core.models.language_model import LanguageModel
from astra_core.models.pretrained import weights_digest
from astra_core.system import System
from astra_core.training.learner import make_trainable
from astra_parts.testing import tiny_language_model
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
    return preference_of(LanguageModel.load(folder))


def preference_of(model):
    context = tuple(
        token
        for text in ("so they said", "you are bad")
        for token in model.closed_ids(model.encode(text))
    )
    answers = [model.closed_ids(model.encode(text)) for text in ("fine", "bad")]
    better, worse = model.continuation_logprobs([(*model.opening_ids, *context)] * 2, answers)
    return sum(better) - sum(worse)


def weights_in(model):
    """Where the weights of a model are, and where its adapters'."""
    found = set(), set()
    for name, weight in model.named_parameters():
        found["lora_" in name].add(weight.data_ptr())
    return found


def test_the_better_answer_becomes_likelier_where_the_target_reads_it(place):
    own = changed(place, "here", lr=1e-2)
    folder = train_target(1, PAIRS, own)

    assert preference(folder) > preference(place.target(0)) + 0.1
    assert [] == [path.name for path in Path("here").iterdir() if path.name != "target_1"]


@pytest.fixture
def adapted(place):
    return changed(place, "there", lr=1e-2, lora=LoraConfiguration(rank=2))


def test_adapters_are_merged_and_kept_beside(adapted):
    folder = train_target(1, PAIRS, adapted)
    base = adapted.target(0)
    whole, apart = (LanguageModel.load(folder, beside=own) for own in ([], [base]))

    assert preference(folder) > preference(adapted.target(0)) + 0.1
    assert [False, True] == [hasattr(own.model, "peft_config") for own in (whole, apart)]
    assert preference_of(whole) == pytest.approx(preference_of(apart), abs=1e-4)


@pytest.mark.real
def test_attacker_reference_and_target_are_on_one_base(adapted):
    folders = {name: adapted.target(0) for name in ("attacker", "reference")}
    target = [train_target(number, PAIRS, adapted) for number in (1, 2)][-1]
    system = System.load(QUICK.system, target=target, is_trained=True, **folders)
    make_trainable(system, TrainingConfiguration(lora=LoraConfiguration(rank=3)), seed=0)
    models = (system.attacker, system.reference, system.target.language_model)
    bases, adapters = zip(*(weights_in(own.model) for own in models), strict=True)

    assert bases[0] == bases[1] == bases[2]
    assert not any(bases[0] & own for own in adapters)
    assert [True, False, True] == [bool(own) for own in adapters]


def test_a_target_is_merged_where_nothing_in_memory_is_its_base(adapted, tmp_path):
    target, other = train_target(1, PAIRS, adapted), tmp_path / "other"
    tiny_language_model(seed=5).save(other)
    system = System.load(QUICK.system, attacker=other, target=target, reference=other)

    assert not hasattr(system.target.language_model.model, "peft_config")


def test_figures_of_a_target_apart_and_merged_have_other_keys(adapted, tmp_path):
    target, other = train_target(1, PAIRS, adapted), tmp_path / "other"
    tiny_language_model(seed=5).save(other)
    apart, merged = (
        System.load(QUICK.system, attacker=other, target=target, reference=reference)
        for reference in (adapted.target(0), other)
    )

    assert apart.target_digest == merged.target_digest
    assert apart.digest() != merged.digest()


def test_a_base_that_changed_is_not_taken(adapted):
    folder = train_target(1, PAIRS, adapted)
    before = preference(folder)
    tiny_language_model(seed=5).save(adapted.target(0))

    assert before == preference_of(LanguageModel.load(folder, beside=[adapted.target(0)]))


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
