from dataclasses import replace

import pytest
from each_row import each_row

from astra_core.config import (
    AttackerConfiguration,
    Choice,
    GenerationConfiguration,
    SystemConfiguration,
)
from astra_core.engine.machine import Machine
from astra_core.errors import ConfigurationError
from astra_core.system import System
from astra_core.target import Surroundings
from astra_core.targets.causal_lm import CausalLM
from astra_parts.scorers.phrases import PhraseScorer
from astra_parts.testing import tiny_language_model, tiny_system

CONFIG = SystemConfiguration(scorer=Choice(name="phrases", options={"phrases": ["bad"]}))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    tiny_language_model(1).save(root / "one")
    tiny_language_model(1).save(root / "same")
    tiny_language_model(2).save(root / "two")
    tiny_language_model(1, vocabulary=None).save(root / "bytes")
    return root


def loaded(root, attacker, target, reference, **options):
    folders = {"attacker": attacker, "target": target, "reference": reference}
    return System.load(CONFIG, **{k: root / v for k, v in folders.items()}, **options)


@pytest.fixture(scope="module")
def digest(folders):
    return loaded(folders, "one", "one", "one").digest()


def test_target_and_reference_of_the_same_weights_are_one_model(folders):
    system = loaded(folders, "one", "one", "same")

    assert system.reference_is_target
    assert system.reference is system.target.language_model
    assert system.attacker is not system.reference


def test_what_ends_a_list_to_continue_ends_no_reply(folders):
    lines = "{% for m in messages %}{{ m.content }} so{% endfor %}"
    told = AttackerConfiguration(format="template", template=lines)
    config = CONFIG.model_copy(update={"attacker": told})
    parts = dict.fromkeys(("attacker", "target", "reference"), folders / "one")
    system = System.load(config, **parts)

    ends = set(system.attacker.end_ids) - set(system.target.language_model.end_ids)
    assert system.attacker.encode("so")[-1] in ends
    assert list(system.attacker.end_ids) == system.attacker.model.generation_config.eos_token_id
    places = [
        [weight.data_ptr() for weight in own.model.parameters()]
        for own in (system.attacker, system.reference, system.target.language_model)
    ]
    assert [places[0]] * 3 == places


def test_folders_may_be_text_and_what_learns_is_its_parameters(folders):
    texts = {role: str(folders / "one") for role in ("attacker", "target", "reference")}
    system = System.load(CONFIG, **texts, is_trained=True)

    learned = [p for p in system.attacker.model.parameters() if p.requires_grad]
    assert list(map(id, learned)) == list(map(id, system.parameters()))
    assert learned


def test_other_weights_are_another_model(folders):
    system = loaded(folders, "one", "two", "one")

    assert system.shares_tokenizer
    assert not system.reference_is_target
    assert system.target.language_model.model is not system.reference.model


def test_a_target_may_have_another_tokenizer(folders):
    system = loaded(folders, "one", "bytes", "one")

    assert not system.shares_tokenizer
    assert not system.reference_is_target


def test_a_reference_may_not(folders):
    with pytest.raises(ConfigurationError, match=r"models\.reference must share the attacker's"):
        loaded(folders, "one", "one", "bytes")


def test_the_plan_is_the_attacker_s_in_the_system_s_precision_on_the_machine_given(folders):
    machine = Machine("cpu", "any", "plain", frozenset(), num_threads=3)
    config = CONFIG.model_copy(update={"precision": "bf16"})
    paths = {"attacker": folders / "one", "target": folders / "two", "reference": folders / "one"}
    system = System.load(config, **paths, machine=machine)

    assert machine == system.target.language_model.plan.machine == system.reference.plan.machine
    assert replace(system.attacker.plan, talks_in="bf16") == system.plan
    assert 3 == system.plan.num_threads


def test_the_threads_are_those_of_the_largest_that_talks(folders):
    system = loaded(folders, "one", "two", "one")
    system.target.language_model.plan = replace(system.target.language_model.plan, num_threads=7)
    system.reference.plan = replace(system.reference.plan, num_threads=9)

    assert 7 == system.plan.num_threads


def test_only_an_attacker_that_is_trained_takes_gradients(folders):
    frozen, trained = (
        loaded(folders, "one", "one", "one", is_trained=flag) for flag in (False, True)
    )

    assert not any(p.requires_grad for p in frozen.attacker.model.parameters())
    assert all(p.requires_grad for p in trained.attacker.model.parameters())
    assert not any(p.requires_grad for p in trained.reference.model.parameters())


def test_the_digest_names_target_scorer_and_settings_but_not_the_attacker(folders, digest):
    assert digest == loaded(folders, "two", "same", "two").digest()
    assert digest != loaded(folders, "one", "two", "one").digest()
    for update in (
        {"max_context_tokens": 100},
        {"scorer": Choice(name="phrases", options={"phrases": ["worse"]})},
        {"response": GenerationConfiguration(temperature=0.5)},
    ):
        config = CONFIG.model_copy(update=update)
        parts = dict.fromkeys(("attacker", "target", "reference"), folders / "one")
        assert digest != System.load(config, **parts).digest()


@each_row(("size", "num_asked"), [(0, 4), (1, 3), (100, 2)])
def test_the_size_of_the_score_cache_says_how_much_is_asked_and_changes_no_score(
    folders, digest, monkeypatch, size, num_asked
):
    asked = []
    score = PhraseScorer.score
    monkeypatch.setattr(
        PhraseScorer, "score", lambda self, texts: asked.extend(texts) or score(self, texts)
    )
    parts = dict.fromkeys(("attacker", "target", "reference"), folders / "one")
    config = CONFIG.model_copy(update={"score_cache_size": size})
    system = System.load(config, **parts)
    scores = [system.scorer.score([text]) for text in ("bad", "so", "so", "bad")]

    assert [[0.5], [0.0], [0.0], [0.5]] == scores
    assert num_asked == len(asked)
    # Examinations under either setting can be compared.
    assert digest == system.digest()


def test_a_context_leaves_room_for_what_is_to_be_said():
    system = tiny_system()
    small = tiny_language_model(max_positions=32)

    assert system.context_limit(system.attacker, 6) == 64
    assert system.context_limit(small, 6) == 26


def test_an_utterance_longer_than_a_model_can_read_is_refused():
    config = SystemConfiguration(probe=GenerationConfiguration(max_new_tokens=128))

    with pytest.raises(
        ConfigurationError, match=r"system\.probe\.max_new_tokens must be below 128"
    ):
        tiny_system(config=config)


class Remembering(CausalLM):
    """Notes when it may remember."""

    scopes = 0

    def remembering(self, max_bytes, *, is_bf16=False):
        self.scopes += 1
        return super().remembering(max_bytes, is_bf16=is_bf16)


def test_a_target_derived_from_ours_remembers_in_its_own_way():
    plain = tiny_system(1)
    around = Surroundings(plain.config, language_model=plain.target.language_model)
    target = Remembering(surroundings=around)
    own = System.of(
        plain.attacker, target, plain.reference, scorer=plain.scorer, config=plain.config
    )
    with own.remembering():
        assert 1 == target.scopes
        assert target.language_model._store is not None
    assert target.language_model._store is None
