import pytest
from hardening_world import ASKED, QUICK, make_hardening_world

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_parts.testing import tiny_language_model
from tasks.hardening.pairs import first_findings
from tasks.hardening.places import ATTACKER, HardeningPlace
from tasks.records.models import read_model_paths


@pytest.fixture
def place(tmp_path, monkeypatch):
    return make_hardening_world(tmp_path, monkeypatch)


def key_of(params=QUICK, *, code="", findings="", is_fresh=True):
    return HardeningPlace.of(params, code=code, findings=findings, is_fresh=is_fresh).key


def hardened(**changes):
    own = QUICK.hardening.model_copy(update=changes)
    return QUICK.model_copy(update={"hardening": own})


def test_more_rounds_and_other_limits_go_on_where_a_hardening_was(place):
    assert place.key == key_of(hardened(rounds=7, max_success=0.5, max_over_refusal=1.0))


def test_whatever_decides_a_figure_is_another_hardening(place):
    others = [key_of(hardened(lr=1.0)), key_of(code="other"), key_of(is_fresh=False)]
    others.append(key_of(findings="other"))
    ASKED.write_text(ASKED.read_text() + "may we go?,,safe\n")
    others.append(key_of())
    tiny_language_model(seed=12).save(ATTACKER)
    others.append(key_of())

    assert 7 == len({place.key, *others})


def test_findings_alone_begin_anew_only_after_one_has_ended(place):
    def begun(*findings):
        own = HardeningPlace.of(QUICK, code="", findings=findings, is_fresh=True)
        return own.begin(findings)

    first = begun("a")
    assert first == begun("b") == begun("a")
    first.end()
    second = begun("b")
    assert second != first == begun("a")
    second.end()
    other = HardeningPlace.of(hardened(lr=1.0), code="", findings=(), is_fresh=True)
    assert other == other.begin(())


def test_target_and_attacker_0_are_the_projects_own(place):
    base = place.base(1) if place.target(1).is_dir() else None
    tiny_language_model(seed=5).save(place.target(1))

    assert base is None
    assert read_model_paths(place.base(0))["target"] == place.target(0)
    assert read_model_paths(place.base(1))["target"] == place.target(1).resolve()
    assert [0] == place.attackers(1)
    tiny_language_model(seed=6).save(place.attacker(1))
    assert [0, 1] == place.attackers(1)
    assert ATTACKER == place.attacker(0)


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        ("models/attacker/config.json", "models/attacker must hold the trained attacker, got none"),
        ("my/asked.csv", "evaluation.benign_prompts must name harmless requests"),
    ],
)
def test_what_is_missing_is_told_with_what_brings_it(place, gone, told):
    (place.folder.parents[2] / gone).unlink()
    with pytest.raises(ConfigurationError, match=told):
        key_of()


def test_a_target_without_weights_is_refused(place):
    scripted = Choice(name="scripted", options={"otherwise": ["so"]})
    system = QUICK.system.model_copy(update={"target": scripted})
    for asked in (key_of, first_findings):
        with pytest.raises(ConfigurationError, match=r"must be causal_lm .* 'scripted'"):
            asked(QUICK.model_copy(update={"system": system}))
