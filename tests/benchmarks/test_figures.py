from benchmarks.figures import Figure, cost_table, table
from benchmarks.timing import Cost


def test_the_table_says_which_limit_is_kept():
    lines = table([Figure("a", 2.0, "%", 3.0), Figure("b", 3.0, "%", 3.0), Figure("c", 1.0, "s")])

    assert [
        "| a | 2 % | < 3 % | kept |",
        "| b | 3 % | < 3 % | EXCEEDED |",
        "| c | 1 s |  |  |",
    ] == (lines.splitlines()[2:])


def test_ratios_are_to_the_first_way():
    costs = [Cost("ours", 2.0, 3.0, 5), Cost("other", 5.0, 9.0, 3), Cost("third", 1.0, None, 1)]
    lines = cost_table("update", costs, threads=2).splitlines()

    assert lines[0] == "| update | wall s, 2 threads | x | CPU s, 1 thread | x | repetitions |"
    assert [
        "| ours | 2 | 1.0 | 3 | 1.0 | 5 |",
        "| other | 5 | 2.5 | 9 | 3.0 | 3 |",
        "| third | 1 | 0.5 |  |  | 1 |",
    ] == lines[2:]
