"""Damaged files are in tests/bad_input/params_files.py; here is what passes, and what it costs."""

import pytest

from astra_core.errors import ConfigurationError
from tasks.params.yaml_files import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_NODES,
    check_yaml,
    load_yaml,
    read_yaml_text,
)


def checked(text):
    check_yaml(text, subject="it", way_out="correct it")
    return load_yaml(text, subject="it", way_out="correct it")


def test_aliases_and_merges_of_a_sensible_size_are_read():
    assert {"a": {"x": 1}, "b": {"x": 1}} == checked("a: &a {x: 1}\nb: {<<: *a}\n")
    assert {"a": [1, 1]} == checked("a: [&n 1, *n]")


def test_a_mark_at_the_beginning_is_passed_over(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfseed: 1\n")

    assert "seed: 1\n" == read_yaml_text(tmp_path / "a.yaml")


def test_a_file_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "a.yaml").write_text("#" * MAX_BYTES)

    assert MAX_BYTES == len(read_yaml_text(tmp_path / "a.yaml"))


def test_levels_are_counted():
    checked("[" * MAX_DEPTH + "]" * MAX_DEPTH)

    with pytest.raises(ConfigurationError, match="it must be YAML, got: more than 50 levels"):
        checked("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_an_alias_counts_as_what_it_stands_for():
    # Ten lists of 1,999 values and one node, in a list of one more: too many only with an eleventh.
    own = MAX_NODES // 10 - 1
    first = f"&a [{', '.join(['1'] * (own - 1))}]"
    check_yaml(f"[{first}{', *a' * 9}]", subject="it", way_out="")

    with pytest.raises(ConfigurationError, match="more than 20000 values, aliases written out"):
        check_yaml(f"[{first}{', *a' * 10}]", subject="it", way_out="")


def test_what_was_built_may_be_changed():
    built = checked("a: [1, 2]")
    built["a"].append(3)

    assert {"a": [1, 2]} == checked("a: [1, 2]")
