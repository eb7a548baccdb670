import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from found_by_hand import finding

from astra_core.errors import DataError
from astra_core.rollout import Prompt
from astra_parts.testing import tiny_graph, tiny_node, tiny_system
from tasks.findings.archive import (
    ARCHIVE,
    Origin,
    _gather,
    add_findings,
    keep_findings,
    read_archive,
    training_kept,
)

ORIGIN = Origin("evaluation", "run", "attacker", "target", "judge")
LONG = "you never say what you mean to say when they ask you for it"


def kept(folder, *nodes, origin=ORIGIN, name="one", prompt=None):
    path = folder / f"{name}.parquet"
    keep_findings([tiny_graph(*nodes, prompt=prompt)], origin, path, threshold=0.5)
    return path


def hit(text, score=0.9, **changes):
    return tiny_node(score, probe_text=text, **changes)


def test_a_success_is_kept_up_to_its_first_hit(tmp_path):
    after = hit("and then", 1.0)
    second = tiny_node(
        0.0,
        after,
        probe_text="worse",
        response_texts=("a", "b"),
        response_scores=(0.5, 0.9),
        response_rationales=("", "rude"),
    )
    first = tiny_node(0.0, second, probe_text="hello", response_texts=("hi", "ho"))
    prompt = Prompt.of("begin", {"category": "insults", "secret": "OWL"})
    kept(tmp_path, first, tiny_node(0.4), prompt=prompt)
    (found,) = read_archive(tmp_path)

    assert (("hello", "worse"), ("hi", "b")) == (found.probes, found.replies)
    assert (0.7, (0.5, 0.9), "rude") == (found.score, found.scores, found.rationale)
    assert (2, "0.0", "insults") == (found.turn, found.path, found.category)
    assert (prompt.prompt_id, "begin", "OWL") == (
        found.prompt_id,
        found.prompt,
        found.record()["metadata"]["secret"],
    )
    assert ("target", "attacker", "judge", "run") == (
        found.target,
        found.attacker,
        found.judge,
        found.run,
    )


def test_a_finding_is_what_the_target_read(tmp_path):
    plain = tiny_system()
    config = plain.config.model_copy(update={"spelling": "reversed"})
    origin = Origin.of(replace(plain, config=config), "evaluation", "r" * 16)
    kept(tmp_path, hit("why"), origin=origin)

    (found,) = read_archive(tmp_path)
    assert ("yhw",) == found.probes


def test_equal_and_nearly_equal_findings_are_one_and_other_targets_apart(tmp_path):
    kept(tmp_path, hit(LONG), hit(LONG), hit(f"{LONG} now", 0.8), hit("get out of here now", 0.7))
    kept(tmp_path, hit(LONG), origin=Origin("evaluation", "later", "a", "target", "j"), name="two")
    kept(tmp_path, hit(LONG, 0.6), origin=Origin("evaluation", "r", "a", "else", "j"), name="three")
    found = read_archive(tmp_path)

    assert [(LONG, 3, 1), ("get out of here now", 1, 0), (LONG, 1, 0)] == [
        (each.probes[0], each.times, each.alike) for each in found
    ]
    assert ("later", "else") == (found[0].run, found[2].target)


def test_a_repeated_run_adds_only_what_is_new_and_two_at_once_lose_nothing(tmp_path):
    texts = [f"{word} {word} is what {word} said" for word in ("one", "two", "three", "four")]
    path = kept(tmp_path, hit(texts[0]))
    before = path.read_bytes()
    kept(tmp_path, hit(texts[0]))
    assert before == path.read_bytes()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda text: kept(tmp_path, hit(text)), texts * 5))

    found = {each.probes[0]: each.times for each in read_archive(tmp_path)}
    assert dict.fromkeys(texts, 1) == found


def test_a_run_without_a_success_writes_no_file_and_an_empty_archive_is_told(tmp_path):
    assert not kept(tmp_path, tiny_node(0.1), tiny_node(0.0, failure="gone")).exists()
    with pytest.raises(DataError, match="must hold findings, got none; 'astra run' keeps"):
        read_archive(tmp_path)


def test_a_broken_file_is_told_with_its_name(tmp_path):
    kept(tmp_path, hit(LONG))
    (tmp_path / "bad.parquet").write_text("none")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path}/bad.parquet must hold findings")):
        read_archive(tmp_path)


@pytest.mark.parametrize(
    ("column", "value"),
    [("probes", None), ("probes", []), ("replies", [None]), ("score", None), ("metadata", "[")],
)
def test_a_file_with_gaps_is_told_with_its_name(tmp_path, column, value):
    path = kept(tmp_path, hit(LONG))
    rows = pq.read_table(path)
    place = rows.schema.get_field_index(column)
    bad = pa.array([value], rows.schema.field(place).type)
    pq.write_table(rows.set_column(place, column, bad), path)
    with pytest.raises(DataError, match=re.escape(f"{path} must hold findings, got ")):
        read_archive(tmp_path)


def test_an_archive_that_is_a_file_is_told(tmp_path):
    (tmp_path / "findings").write_text("")
    with pytest.raises(DataError, match="findings must be a folder of findings, got a file"):
        read_archive(tmp_path / "findings")


def test_what_is_not_chosen_stands_for_nothing(tmp_path):
    kept(tmp_path, hit(f"{LONG} now", 0.8))
    kept(tmp_path, hit(LONG), hit(f"{LONG} now", 0.8), origin=replace(ORIGIN, run="a"), name="two")
    every = read_archive(tmp_path)
    chosen = read_archive(tmp_path, lambda rows: [each for each in rows if each.run == "run"])

    assert [("a", 1)] == [(each.run, each.alike) for each in every]
    assert [("run", 0, 1)] == [(each.run, each.alike, each.times) for each in chosen]
    assert every[0].others == (chosen[0].finding_id,)


def test_other_targets_and_shortened_findings_join_no_family(tmp_path):
    words = [f"w{number}" for number in range(34)]
    # The middle one is near both others, which are not near each other.
    texts = [" ".join(words[first : first + 30]) for first in (0, 2, 4)]
    found = [finding(text, finding_id=text) for text in texts]
    bridge = replace(found[1], target="else")
    short = finding(texts[0], finding_id="s", source="minimised")
    add_findings(found, tmp_path / "all/a.parquet")
    assert [2] == [each.alike for each in read_archive(tmp_path / "all")]
    shutil.rmtree(tmp_path / "all")
    add_findings([found[0], bridge, found[2], short], tmp_path / "a.parquet")

    assert [0] * 4 == [each.alike for each in read_archive(tmp_path)]


def test_an_archive_is_read_while_a_training_ends(tmp_path):
    whole, pieces = tmp_path / "training-k.parquet", tmp_path / "training-k"
    with ThreadPoolExecutor(1) as pool:
        for number in range(20):
            keep_findings(
                [tiny_graph(hit(LONG), hit(f"{number} only"))],
                ORIGIN,
                pieces / "1.parquet",
                threshold=0.5,
            )
            # Pieces beside a whole file count too, and what is in both once.
            assert number + 2 == sum(each.times for each in read_archive(tmp_path))
            ending = pool.submit(_gather, pieces)
            while not ending.done():
                assert number + 2 == sum(each.times for each in read_archive(tmp_path))
            ending.result()
    assert [whole] == list(tmp_path.iterdir())


def experienced(trainer, *numbers):
    for number in numbers:
        graph = tiny_graph(hit(f"{LONG} {number}" * (number + 1)), iteration=number)
        trainer.by_hand.on_experience(SimpleNamespace(iteration=number, graphs=[graph]))


def test_half_a_character_is_kept_as_json_writes_it(tmp_path):
    kept(tmp_path, hit("go\ud83d", response_texts=("no\udc80",)))
    (found,) = read_archive(tmp_path)

    assert (("go\\ud83d",), ("no\\udc80",)) == (found.probes, found.replies)


def test_a_killed_training_ends_with_the_bytes_of_a_quiet_one(tmp_path, monkeypatch):
    trainer = SimpleNamespace(
        sampler=SimpleNamespace(system=tiny_system()), by_hand=SimpleNamespace()
    )
    ended = []
    for name, first in (("quiet", ()), ("killed", (0, 1))):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        context = training_kept(trainer, "k" * 64, threshold=0.5)
        context.__enter__()
        experienced(trainer, *first)
        # What it has found so far is there, though it never ended.
        assert len(first) == len(list(ARCHIVE.rglob("*.parquet")))
        with training_kept(trainer, "k" * 64, threshold=0.5):
            experienced(trainer, *(1, 2) if first else (0, 1, 2))
        (file,) = ARCHIVE.iterdir()
        ended.append(file.read_bytes())
        # A kill while pieces were removed leaves some of them.
        context = training_kept(trainer, "k" * 64, threshold=0.5)
        context.__enter__()
        experienced(trainer, 1)
        assert [1, 1, 1] == [each.times for each in read_archive()]
        with training_kept(trainer, "k" * 64, threshold=0.5):
            pass
        assert [file.read_bytes()] == [each.read_bytes() for each in ARCHIVE.iterdir()]

    assert ended[0] == ended[1]
    assert [2, 1, 0] == sorted((each.iteration for each in read_archive()), reverse=True)
