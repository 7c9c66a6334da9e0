"""A monitor of the same shape that does nothing, so that a training loop needs no `if`."""

from types import TracebackType
from typing import Self

from twoclocks.client.readings import Number
from twoclocks.wire import AckState, Directive


class NullMonitor:
    """Takes whatever Monitor takes and says `hold` for ever."""

    def __init__(self, *ignored: object, attempt: int | None = None, **ignored_too: object) -> None:
        self._attempt = attempt if attempt is not None else 1
        self._directive = Directive(generation=0, reason="not monitored")

    def report(
        self,
        /,
        *positional: object,
        step: Number | None = None,
        samples: Number | None = None,
        rollout_batch: Number | None = None,
        learning_rate: Number | None = None,
        reward: Number | None = None,
        updates: Number = 1,
        epochs: Number = 1,
        **metrics: Number | None,
    ) -> None:
        """Do nothing."""

    def ack(
        self,
        generation: int,
        state: AckState | str,
        *,
        step: int | None = None,
        rollout_batch: int | None = None,
        learning_rate: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Do nothing."""

    def finish(self, state: str = "finished", reason: str | None = None) -> None:
        """Do nothing."""

    def close(self, timeout: float = 10.0) -> bool:
        """Do nothing; True, for nothing waits."""
        return True

    @property
    def directive(self) -> Directive:
        """Generation 0, which asks for nothing."""
        return self._directive

    @property
    def attempt(self) -> int:
        """The attempt given, or 1."""
        return self._attempt

    @property
    def pending(self) -> int:
        """0."""
        return 0

    @property
    def delivered(self) -> int:
        """0."""
        return 0

    @property
    def refused(self) -> int:
        """0."""
        return 0

    @property
    def shed(self) -> int:
        """0."""
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
