import pytest
from each_row import each_row
from pydantic import ConfigDict

from astra_core.config import Section
from astra_parts.sink import Sink
from astra_parts.testing import check_sink


class Quiet(Sink):
    """Keeps nothing."""

    def write(self, figures, step):
        pass


class Forgiving(Quiet):
    class Options(Section):
        model_config = ConfigDict(extra="ignore")


class Forgetful(Quiet):
    def recorded_figures(self):
        return ()


class Shared(Quiet):
    """Runs have one record together."""

    def _path(self):
        return self.run.folder.parent / "all.txt"

    def write(self, figures, step):
        with self._path().open("a") as file:
            file.writelines(f"{name} {step}\n" for name in figures)

    def recorded_figures(self):
        lines = self._path().read_text().splitlines() if self._path().exists() else []
        return [(line.split()[0], int(line.split()[1])) for line in lines]


def test_a_sink_that_only_writes_keeps_the_contract():
    check_sink(Quiet)


@each_row(
    ("sink", "promise"),
    [
        (Forgiving, "refuses an unknown option"),
        (Forgetful, "records no figure twice"),
        (Shared, "another run starts empty"),
    ],
)
def test_a_sink_that_breaks_a_promise_is_reported_with_it(sink, promise):
    with pytest.raises(AssertionError, match=promise):
        check_sink(sink)
