import numpy as np
from each_row import each_row

from tasks.expectations.speech import is_degenerate, items


@each_row("text", ["", "  ", "yes yes yes yes yes yes", "a b a b a b a b"])
def test_blank_and_repeated_text_is_degenerate(text):
    assert is_degenerate(text)


@each_row("text", ["no", "no no no", "one two three four five six"])
def test_short_and_varied_text_is_not(text):
    assert not is_degenerate(text, probe="how are you")


def test_an_echo_of_the_probe_is_degenerate():
    assert is_degenerate(" how are you ", probe="how are you")


@each_row("cell", [None, float("nan"), [], np.array([])])
def test_an_empty_cell_has_no_items(cell):
    assert 0 == len(items(cell))
