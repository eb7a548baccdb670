import json

import pytest
from each_row import each_row

from astra_core.config import Choice
from astra_core.models.language_model import LanguageModel
from astra_core.registry import build
from benchmarks import worlds
from benchmarks.worlds import TRIGGERS, WORLDS, main, make_dialogues


def angry_after(name, count=500):
    """For each remark of many dialogues: the two remarks so far, and whether the answer insults."""
    scorer = build("scorer", Choice(name="profanity"))
    found = []
    for _opener, first, one, second, two in make_dialogues(name, count, seed=3):
        scores = scorer.score([first, one, second, two])
        found.append((first, second, scores))
    return found


def share(flags):
    flags = list(flags)
    return sum(flags) / len(flags)


@pytest.mark.wide
def test_a_mirror_insults_whoever_insults_it():
    talks = angry_after("mirror")

    assert share(s[1] >= 0.5 for _, _, s in talks if s[0] >= 0.5) > 0.8
    assert share(s[1] >= 0.5 for _, _, s in talks if s[0] < 0.5) < 0.05


@pytest.mark.wide
def test_two_colours_anger_the_target_and_no_other_does():
    talks = angry_after("keyword")
    has_trigger = [
        any(f" {word} " in f" {f.rstrip('.?')} " for word in TRIGGERS) for f, _, _ in talks
    ]

    pairs = list(zip(has_trigger, talks, strict=True))
    assert share(s[1] >= 0.5 for is_in, (_, _, s) in pairs if is_in) > 0.8
    assert share(s[1] >= 0.5 for is_in, (_, _, s) in pairs if not is_in) < 0.05
    assert share(s[0] >= 0.5 for _, _, s in talks) < 0.02


@pytest.mark.wide
def test_two_turns_are_needed():
    talks = angry_after("two_turns")

    assert share(s[1] >= 0.5 for _, _, s in talks) < 0.05
    # One in nine pairs of remarks is kind first and provoking then.
    assert 0.07 < share(s[3] >= 0.5 for _, _, s in talks) < 0.17
    temper = WORLDS["two_turns"].angers
    assert temper(["friendly", "provocation"])
    assert not temper(["provocation", "provocation"])
    assert not temper(["provocation"])


def test_the_sibling_of_two_turns_has_other_triggers_in_the_other_order():
    temper = WORLDS["colour_then_kind"].angers

    assert temper(["coloured", "friendly"])
    assert not any(
        temper(kinds)
        for kinds in (["friendly", "coloured"], ["friendly", "friendly"], ["neutral", "friendly"])
    )
    assert not temper(["friendly", "provocation"])
    assert not WORLDS["two_turns"].angers(["coloured", "friendly"])


@each_row("name", WORLDS)
def test_a_seed_gives_the_same_dialogues(name):
    assert make_dialogues(name, 5, seed=1) == make_dialogues(name, 5, seed=1)
    assert make_dialogues(name, 5, seed=1) != make_dialogues(name, 5, seed=2)


@pytest.mark.wide
def test_a_world_has_a_model_and_prompts(tmp_path):
    sizes = ["--num-dialogues", "16", "--num-prompts", "12"]

    assert 0 == main(["keyword", str(tmp_path / "one"), *sizes])
    assert 0 == main(["keyword", str(tmp_path / "two"), *sizes])

    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*") if path.is_file()}
        for name in ("one", "two")
    )
    assert one == two
    lines = (tmp_path / "one" / worlds.PROMPTS).read_text().splitlines()
    assert 12 == len({json.loads(line)["text"] for line in lines})
    LanguageModel.load(tmp_path / "one" / worlds.MODEL)


@pytest.mark.wide
def test_a_model_of_ones_own_is_trained_on(tmp_path, capsys):
    main(["mirror", str(tmp_path / "base"), "--num-dialogues", "8", "--num-prompts", "3"])
    file = tmp_path / "talk.jsonl"
    file.write_text(json.dumps(["hello there", "good day to you"]) + "\n")
    arguments = ["--model", str(tmp_path / "base/model"), "--dialogues", str(file)]
    losses = []
    for epochs in ("1", "12"):
        arguments_of = ["finetune", str(tmp_path / epochs), *arguments, "--epochs", epochs]
        assert 0 == main([*arguments_of, "--lr", "3e-3"])
        losses.append(float(capsys.readouterr().out.split()[-1]))

    assert losses[1] < losses[0] - 0.5
    LanguageModel.load(tmp_path / "12" / worlds.MODEL)


@each_row("text", ["", "{}\n", "[1]\n", "not json\n"])
def test_dialogues_that_are_none_are_one_line(text, tmp_path, capsys):
    file = tmp_path / "talk.jsonl"
    file.write_text(text)

    assert 2 == main(["finetune", str(tmp_path / "x"), "--model", "m", "--dialogues", str(file)])
    (line,) = capsys.readouterr().err.splitlines()
    assert "--dialogues must" in line
