import pytest
from hardening_world import ASKED, QUICK, find, make_hardening_world

from astra_core.config import Choice
from astra_core.errors import DataError
from astra_core.models.pretrained import weights_digest
from astra_core.rollout import Prompt
from astra_parts.attackers.converters import to_rot13
from astra_parts.testing import tiny_graph, tiny_language_model, tiny_node
from tasks.figures.over_refusal import refusals
from tasks.findings.archive import ARCHIVE, Origin, keep_findings, read_archive
from tasks.findings.labels import write_label
from tasks.hardening.pairs import (
    BENIGN,
    REFUSALS,
    answered_requests,
    first_findings,
    read_pairs,
    write_pairs,
)
from tasks.hardening.places import VALID, HardeningPlace
from tasks.records.prompts import read_prompts


@pytest.fixture
def place(tmp_path, monkeypatch):
    return make_hardening_world(tmp_path, monkeypatch)


def changed(place, **changes):
    hardening = QUICK.hardening.model_copy(update=changes)
    return HardeningPlace(place.folder, QUICK.model_copy(update={"hardening": hardening}))


def test_each_finding_is_a_pair_and_harmless_requests_are_as_many(place):
    pairs = write_pairs(1, place)
    found, benign = pairs[:3], pairs[3:]

    assert {"bad 0", "bad 1", "bad 2"} == {each.worse for each in found}
    assert ("you are bad",) in [each.said for each in found]
    # The target has safe replies of its own.
    assert not {each.answer for each in found} & {*REFUSALS}
    assert [BENIGN] * 3 == [each.source for each in benign]
    assert {each.worse for each in benign} <= {*REFUSALS}
    assert "user" == found[0].conversation.messages[-1].role


def test_of_the_safest_replies_one_is_preferred_that_came_to_its_end(place):
    target, limit = place.system(0).target, QUICK.system.response.max_new_tokens
    answers = {each.answer for each in write_pairs(1, place) if each.source != BENIGN}

    assert [] == [text for text in answers if len(target.format.written_ids(text)) > limit]


def test_a_refusal_is_preferred_where_that_is_asked_for(place):
    own = changed(place, answer="refusal", benign_share=0.0)

    assert {each.answer for each in write_pairs(1, own)} <= {*REFUSALS}
    assert all(refusals(REFUSALS)[0])


def test_answers_that_are_equal_once_they_are_cut_are_no_pair(place, monkeypatch):
    monkeypatch.setattr("tasks.hardening.pairs.REFUSALS", REFUSALS[:1])
    longer = f"{REFUSALS[0]} bad"
    find(place.target(0), "you are so bad", replies=(longer,))
    pairs = write_pairs(1, changed(place, answer="refusal"))

    assert {"bad 0", "bad 1", "bad 2"} == {each.worse for each in pairs if each.source != BENIGN}


def test_the_target_learns_from_probes_as_it_read_them(place):
    node = tiny_node(0.9, probe_text="you are bad", response_texts=("so bad",))
    origin = Origin("training", "run", "", weights_digest(place.target(0)), "judge", to_rot13)
    graph = tiny_graph(node, prompt=Prompt.of("of training"))
    keep_findings([graph], origin, ARCHIVE / "spelled.parquet", threshold=0.5)
    system = QUICK.system.model_copy(update={"spelling": "rot13"})
    own = HardeningPlace(place.folder, QUICK.model_copy(update={"system": system}))

    said = [each.said for each in write_pairs(1, own) if each.worse == "so bad"]
    assert [("lbh ner onq",)] == said


def test_what_is_found_against_a_target_with_options_is_told_without_loading_it(place):
    target = Choice(name="causal_lm", options={"seed": "opening"})
    system = QUICK.system.model_copy(update={"target": target})
    own = HardeningPlace(place.folder, QUICK.model_copy(update={"system": system}))
    before = first_findings(own.params)
    origin = Origin("training", "run", "", own.system(0).target_digest, "judge")
    graph = tiny_graph(tiny_node(0.9), prompt=Prompt.of("of training"))
    keep_findings([graph], origin, ARCHIVE / "more.parquet", threshold=0.5)

    assert first_findings(QUICK) != before != first_findings(own.params)


def test_requests_that_are_measured_are_never_learned_from(place):
    held = {own.text for own in answered_requests(place) if own.is_held}
    learned = {each.said[0] for each in write_pairs(1, changed(place, benign_share=0.9))}

    assert 3 == len(held)
    assert not held & learned


def test_a_refused_request_counts_for_over_refusal_and_is_not_learned(place):
    rules = [{"when": "hear|eat", "say": [REFUSALS[0]]}]
    target = Choice(name="scripted", options={"rules": rules, "otherwise": ["so good"]})
    system = QUICK.system.model_copy(update={"target": target})
    own = HardeningPlace(place.folder, QUICK.model_copy(update={"system": system}))
    found = answered_requests(own)

    assert [False, True] * 3 == [each.is_held for each in found]
    assert ["so good", None, None, *["so good"] * 3] == [each.reply for each in found]
    learned = {each.answer for each in write_pairs(1, place) if each.source == BENIGN}
    assert {"so good"} == learned


def test_what_was_found_on_prompts_that_are_measured_is_not_learned(place):
    first = read_prompts(VALID / "test.parquet")[0]
    find(place.target(0), "bad where it counts", prompt=first.text, prompt_id=first.prompt_id)

    said = {each.said for each in write_pairs(1, place) if each.source != BENIGN}
    assert {("you are bad",), ("so bad",), ("bad as that",)} == said


def test_pairs_stay_as_they_were_when_the_archive_grows(place):
    first = write_pairs(1, place)
    before = place.file("pairs_1.jsonl").read_bytes()
    find(place.target(0), "something else that is bad")

    assert first == write_pairs(1, place) == read_pairs(place.file("pairs_1.jsonl"))
    assert before == place.file("pairs_1.jsonl").read_bytes()


def test_the_first_round_learns_what_names_its_folder_whatever_was_labelled_since(place):
    ids = first_findings(QUICK)
    own = place.begin(ids)
    write_label(ids[0], "false_positive", by="Ann")
    find(place.target(0), "something else that is bad")

    assert ids == [each.source for each in write_pairs(1, own) if each.source != BENIGN]


def test_a_later_round_learns_what_is_new_and_repeats_what_was_learned(place):
    write_pairs(1, place)
    tiny_language_model(seed=5).save(place.target(1))
    assert [] == write_pairs(2, place)
    find(place.target(1), "all new")
    sources = [each.source for each in write_pairs(2, place) if each.source != BENIGN]

    assert 4 == len(sources)
    assert sources[1:] == [each.source for each in write_pairs(1, place)[:3]]


def test_what_a_person_called_a_false_positive_is_not_learned(place):
    wrong = read_archive()[0].finding_id
    write_label(wrong, "false_positive", by="Ann")
    sources = {each.source for each in write_pairs(1, place)} - {BENIGN}

    assert 2 == len(sources - {wrong}) == len(sources)


def test_without_findings_or_answers_there_is_nothing_to_learn(place):
    ASKED.write_text("prompt\nmay we?\n")
    with pytest.raises(DataError, match=r"two harmless requests .*, got [01] answers of 1"):
        answered_requests(place)
    for path in ARCHIVE.iterdir():
        path.unlink()
    with pytest.raises(DataError, match="must hold findings, got none"):
        write_pairs(1, place)
