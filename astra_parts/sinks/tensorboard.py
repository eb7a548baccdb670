"""TensorBoard's event files; the package ``tensorboard`` is an optional extra."""

from collections.abc import Iterator, Mapping

from astra_core.config import Section
from astra_core.errors.packages import require_package
from astra_parts.sink import Sink, SinkRun, Status


class TensorBoardSink(Sink):
    """Writes scalars; ``tensorboard --logdir tracking/tensorboard`` shows them."""

    @classmethod
    def check(cls) -> None:
        """Raises ConfigurationError unless the package is installed."""
        require_package(
            "tensorboard",
            subject="tracking.sinks: tensorboard",
            extra="tensorboard",
            otherwise=" or remove the name",
        )

    def __init__(self, options: Section, *, run: SinkRun) -> None:
        self.check()
        from torch.utils.tensorboard import SummaryWriter

        super().__init__(options, run=run)
        # Each try has its own file; TensorBoard reads them as one.
        self._writer = SummaryWriter(str(run.folder))

    def write(self, figures: Mapping[str, float], step: int) -> None:
        """Adds a scalar per figure."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def recorded_figures(self) -> Iterator[tuple[str, int]]:
        """The figures in the event files, up to a record that a kill has cut."""
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        for path in sorted(self.run.folder.glob("events.out.tfevents.*")):
            for event in EventFileLoader(str(path)).Load():
                yield from ((value.tag, event.step) for value in event.summary.value)

    def finish(self, status: Status) -> None:
        """Closes the file."""
        del status
        self._writer.close()
