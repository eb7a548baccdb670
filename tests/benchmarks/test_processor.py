from astra_core.engine.processor import processor_class
from benchmarks.processor import machine


def test_a_page_says_what_class_its_figures_are_of():
    line = machine()

    assert f"({processor_class()})" in line
    assert line.endswith("Other classes of processor: not measured.")
