import subprocess
import sys

import pytest

from astra_core.errors import ConfigurationError
from astra_parts.targets.budget import Budget, Prices, Purse, Spent
from astra_parts.targets.kept import Kept, KeptReplies

ONE = Kept("so be it", "hm", "length", 7, 5, 0.25, "tiny fp_1")


def test_what_is_kept_is_found_by_another_process(tmp_path):
    KeptReplies(tmp_path / "a" / "kept.sqlite").keep("k", ONE, account="run", budget="b")
    again = KeptReplies(tmp_path / "a" / "kept.sqlite")

    assert {"k": ONE} == again.found(["k", "other"])
    assert [ONE] == again.replies_of("run")
    assert [] == again.replies_of("another")
    again.use(["k"], account="another")
    assert [ONE] == again.replies_of("another")


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
    assert [ONE] == second.replies_of("run")


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

    assert ["", "", ""] == [each.count(PURSE) for each in (first, second, first)]
    assert "3 of 3 calls made and 1 more to make" == second.count(PURSE)
    first.keep("a", ONE, account="run", budget="b")
    assert Spent(3, 7, 5) == second.spending("b")
    assert Spent() == second.spending("other")


def test_the_model_is_that_of_the_first_answer_until_it_is_said_to_be_new(tmp_path):
    replies = KeptReplies(tmp_path / "kept.sqlite")

    assert ["a", "a"] == [replies.model_before("t", model) for model in ("a", "b")]
    assert "b" == replies.model_before("t", "b", is_new=True)
    assert "b" == replies.model_before("t", "c")
    assert "c" == replies.model_before("other", "c")


KILLED = """
import os, signal, sys
from pathlib import Path
from astra_parts.targets.kept import Kept, KeptReplies
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
    assert 50 == len(KeptReplies(path).replies_of("run"))


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="must be a file of kept replies"):
        KeptReplies(tmp_path / "file" / "kept.sqlite").found(["k"])


def test_a_closed_file_opens_again(tmp_path):
    replies = KeptReplies(tmp_path / "kept.sqlite")
    replies.keep("k", ONE, account="run", budget="b")
    replies.close()

    assert {"k": ONE} == replies.found(["k"])
