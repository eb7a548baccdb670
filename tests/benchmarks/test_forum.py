import json

import pytest
from each_row import each_row

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_core.registry import build
from benchmarks.forum import forum_texts, read_comments, sentences_of
from benchmarks.worlds import MODEL, PROMPTS, main, make_world

CLEAN = [f"the {thing} is on the table. I like it a lot!" for thing in ("cup", "pen", "map", "box")]
RUDE = [f"you are an idiot, {name}." for name in ("sir", "friend", "dear", "boy", "man", "pal")]
COMMENTS = [*CLEAN, *RUDE, "see you at the lake.", "what a nice day it is."]

SCORER = build("scorer", Choice(name="profanity"))


def is_rude(texts):
    return [score >= 0.5 for score in SCORER.score(list(texts))]


def test_sentences_are_neither_short_nor_long():
    assert ["one two three."] == sentences_of(f"one  two\nthree. no. {'word ' * 26}")


@pytest.mark.real
def test_a_dialogue_has_one_tone_and_no_prompt_is_rude_or_read():
    dialogues, prompts = forum_texts(COMMENTS, num_dialogues=60, num_prompts=9, seed=1)
    tones = [is_rude(dialogue) for dialogue in dialogues]

    assert all(len(own) == 3 and len(set(own)) == 1 for own in tones)
    assert 0.2 < sum(own[0] for own in tones) / len(tones) < 0.4
    assert prompts
    assert not any(is_rude(prompts))
    assert not set(prompts) & {text for dialogue in dialogues for text in dialogue}


def test_the_seed_decides():
    def texts(seed):
        return forum_texts(COMMENTS, num_dialogues=9, num_prompts=2, seed=seed)

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def test_too_few_rude_sentences_are_one_line():
    with pytest.raises(ConfigurationError, match=r"3 rude and 3 clean .* got 0, "):
        forum_texts(CLEAN, num_dialogues=1, num_prompts=1, seed=0)


@each_row("text", ["", "{}", "[1]"])
def test_a_file_of_something_else_is_one_line(text, tmp_path):
    file = tmp_path / "comments.json"
    file.write_text(text)

    with pytest.raises(ConfigurationError, match=r"^--comments must .*comments\.json"):
        read_comments(file)


@pytest.mark.wide
def test_the_command_leaves_a_model_and_prompts(tmp_path, capsys):
    make_world("mirror", tmp_path / "base", num_dialogues=8, num_prompts=3)
    file = tmp_path / "comments.json"
    file.write_text(json.dumps(COMMENTS))
    asked = ["--model", str(tmp_path / "base/model"), "--comments", str(file)]
    losses = []
    for batch_size in ("1", "8"):
        size = ["--num-dialogues", "16", "--batch-size", batch_size]
        assert 0 == main(["forum", str(tmp_path / "forum"), *asked, *size])
        losses.append(capsys.readouterr().out)

    assert losses[0] != losses[1]
    LanguageModel.load(tmp_path / "forum" / MODEL)
    lines = (tmp_path / "forum" / PROMPTS).read_text().splitlines()
    assert not any(is_rude(json.loads(line)["text"] for line in lines))
