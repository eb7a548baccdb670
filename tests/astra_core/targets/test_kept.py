import subprocess
import sys

import pytest

from astra_core.errors import ConfigurationError
from astra_core.targets.budget import Budget, Prices, Purse, Spent
from astra_core.targets.kept import Claim, Kept, KeptReplies
from astra_core.targets.under_way import leave_answers

ONE = Kept("so be it", "hm", "length", 7, 5, 0.25, "tiny fp_1")


def test_what_is_kept_is_found_by_another_process(tmp_path):
    KeptReplies(tmp_path / "a" / "kept.sqlite").keep("k", ONE, account="run", budget="b")
    again = KeptReplies(tmp_path / "a" / "kept.sqlite")

    assert {"k": ONE} == again.found(["k", "other"])
    assert [ONE] == again.used("run")
    assert [] == again.used("another")
    again.use(["k"], account="another")
    assert [ONE] == again.used("another")


@pytest.mark.real
def test_a_second_user_in_a_process_leaves_the_locks_of_the_first(tmp_path):
    path = tmp_path / "kept.sqlite"
    first, second = KeptReplies(path), KeptReplies(path)
    for each in (first, second):
        each.use(["k"], account="run")
    # A process that took itself for the last user would remove the journal.
    program = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM uses')"
    subprocess.run([sys.executable, "-c", program, path], check=True)

    assert path.with_name("kept.sqlite-wal").is_file()
    first.keep("k", ONE, account="run", budget="b")
    assert [ONE] == second.used("run")


def test_an_error_that_rolled_back_by_itself_is_the_one_that_is_told(tmp_path):
    replies = KeptReplies(tmp_path / "kept.sqlite")
    replies.use(["k"], account="run")
    database = replies._database
    database.execute(
        "CREATE TRIGGER t BEFORE INSERT ON uses BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
    )

    with pytest.raises(ConfigurationError, match="got: no;"):
        replies.use(["other"], account="run")


def test_more_keys_than_a_statement_takes_are_found(tmp_path):
    replies = KeptReplies(tmp_path / "kept.sqlite")
    keys = [f"k{n}" for n in range(1203)]
    for key in keys[::400]:
        replies.keep(key, ONE, account="run", budget="b")

    assert set(keys[::400]) == set(replies.found(keys))


PURSE = Purse(Budget(name="b", calls=3, evaluation_share=0.0), Prices())


def test_a_call_is_counted_before_it_is_made_by_all_processes_together(tmp_path):
    first, second = (KeptReplies(tmp_path / "kept.sqlite") for _ in range(2))

    claims = [each.claim(key, PURSE) for each, key in ((first, "a"), (second, "b"), (first, "c"))]
    assert [Claim()] * 3 == claims
    refused = second.claim("d", PURSE)
    assert Claim(refused="3 of 3 calls made and 1 more to make") == refused
    first.keep("a", ONE, account="run", budget="b")
    assert Spent(3, 7, 5) == second.spent("b")
    assert Spent() == second.spent("other")


def test_a_call_of_another_process_is_waited_for_and_not_made_twice(tmp_path):
    first, second = (KeptReplies(tmp_path / "kept.sqlite") for _ in range(2))
    assert Claim() == first.claim("k", PURSE)

    assert second.claim("k", PURSE) is None
    assert first.claim("k", PURSE) is None
    first.keep("k", ONE, account="run", budget="b")
    assert Claim(kept=ONE) == second.claim("k", PURSE)
    assert 1 == second.spent("b").calls
    # One that came to nothing is free again, and one that takes too long is not waited for.
    assert Claim() == first.claim("other", PURSE)
    first.release("other")
    assert Claim() == second.claim("other", PURSE)
    refused = Claim(refused="3 of 3 calls made and 1 more to make")
    assert refused == first.claim("other", PURSE, is_late=True)


def test_an_answer_that_nobody_could_use_costs_no_call(tmp_path):
    first, second = (KeptReplies(tmp_path / "kept.sqlite") for _ in range(2))
    for key in ("answered", "never sent", "lost"):
        assert Claim() == first.claim(key, PURSE)
    path, owner = first.path, first.owner.name
    first.close()

    assert Claim(is_again=True) == second.claim("lost", Purse(Budget(name="c"), Prices()))
    leave_answers(path, owner, {"answered": "it", "kept by now": "that"})

    assert Claim(answer="it") == second.claim("answered", PURSE)
    assert 3 == second.spent("b").calls
    assert Claim() == second.claim("never sent", Purse(Budget(name="c"), Prices()))


def test_the_model_is_that_of_the_first_answer_until_it_is_said_to_be_new(tmp_path):
    replies = KeptReplies(tmp_path / "kept.sqlite")

    assert ["a", "a"] == [replies.model_before("t", model) for model in ("a", "b")]
    assert "b" == replies.model_before("t", "b", is_new=True)
    assert "b" == replies.model_before("t", "c")
    assert "c" == replies.model_before("other", "c")


KILLED = """
import os, signal, sys
from pathlib import Path
from astra_core.targets.kept import Kept, KeptReplies
replies = KeptReplies(Path(sys.argv[1]))
for number in range(50):
    replies.keep(f"k{number}", Kept("said"), account="run", budget="b")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.real
def test_nothing_that_was_kept_is_lost_by_a_kill(tmp_path):
    path = tmp_path / "kept.sqlite"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)

    assert -9 == ended.returncode
    assert 50 == len(KeptReplies(path).used("run"))


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="must be a file of kept replies"):
        KeptReplies(tmp_path / "file" / "kept.sqlite").found(["k"])


def test_a_closed_file_opens_again(tmp_path):
    replies = KeptReplies(tmp_path / "kept.sqlite")
    replies.keep("k", ONE, account="run", budget="b")
    replies.close()

    assert {"k": ONE} == replies.found(["k"])
