import re

import pytest
from tiny_chats import chat_model

from astra_core.errors import ConfigurationError
from benchmarks.measures import chat, chat_rollout
from benchmarks.measures.chat_rollout import main


def test_a_missing_model_is_told_with_the_command_that_makes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(chat, "MODEL", tmp_path / "none")

    with pytest.raises(ConfigurationError, match=r"got nothing there; 'make .*none' makes it"):
        chat.own_model()


@pytest.mark.wide
def test_both_ways_write_as_many_tokens_and_the_ratio_is_printed(tmp_path, monkeypatch, capsys):
    chat_model(3).save(tmp_path / "model")
    for module in (chat, chat_rollout):
        monkeypatch.setattr(module, "MODEL", tmp_path / "model")
    main(["--prompts", "1", "--repetitions", "1"])

    said = capsys.readouterr().out
    assert ["ours", "generate"] == re.findall(r"^\| (ours|generate) \|", said, re.MULTILINE)
    assert re.search(r"^ratio: \d+\.\d$", said, re.MULTILINE)
