import json

import pytest
from tiny_benchmark import SMALL_DEMO
from tiny_chats import chat_model

from benchmarks.measures import chat

SHARE = {"value": 0.6, "low": 0.5, "high": 0.7}
FOUND = {
    "evaluation": {
        "baseline": {"attack_success_rate": SHARE},
        "attacker": {
            "attack_success_rate": SHARE,
            "unique_probes_rarefied": 0.95,
            "strategies": 16.6,
            "num_hits_compared": 45,
        },
        "lift": SHARE,
        "plain": {"own_rate": SHARE, "lift": SHARE},
    },
    "decision": "demo version 1 is not promoted: too few",
    "seconds": 615.0,
    "bytes": 3 * 2**30,
}


def test_a_kept_cell_is_not_run_again(tmp_path, capsys):
    (tmp_path / "secret-grpo-2.json").write_text(json.dumps(FOUND))

    assert 0 == chat.main(["--algorithms", "grpo", "--seeds", "2", "--cache", str(tmp_path)])
    share = "60.0 [50.0, 70.0]"
    cells = ["secret", "grpo", "2", *[share] * 5, "0.95", "17 in 45", FOUND["decision"]]
    row = capsys.readouterr().out.splitlines()[2]
    assert " | ".join([*cells, "10.2", "3.0"]) in row


@pytest.mark.wide
def test_a_cell_is_a_run_of_the_demonstration(tmp_path, monkeypatch, capsys):
    chat_model(3).save(tmp_path / "model")
    monkeypatch.setattr(chat, "MODEL", tmp_path / "model")
    monkeypatch.setitem(chat.ALGORITHMS, "dpo", SMALL_DEMO)
    chat.main(["--targets", "secret", "french", "--cache", str(tmp_path)])

    head, _, *rows = capsys.readouterr().out.splitlines()
    assert ["secret", "french"] == [row.split("|")[1].strip() for row in rows]
    assert {head.count("|")} == {row.count("|") for row in rows}
