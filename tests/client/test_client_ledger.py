import logging
import threading

import pytest

from twoclocks.client.ledger import Ledger
from twoclocks.client.lines import one_line, shown


def test_a_cause_is_logged_the_first_tenth_and_hundredth_time(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    for _ in range(150):
        ledger.refuse(1, "same", "refused")
    ledger.refuse(1, "other", "refused for another reason")
    assert ledger.refused == 151
    assert [record.message for record in caplog.records] == [
        "refused",
        "refused (so far 10 times)",
        "refused (so far 100 times)",
        "refused for another reason",
    ]


def test_counts_from_many_threads_add_up() -> None:
    ledger = Ledger()

    def count() -> None:
        for _ in range(1_000):
            ledger.give_up(1, "cause", "line")
            ledger.deliver(2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ledger.shed, ledger.delivered) == (4_000, 8_000)


def test_a_handler_that_raises_does_not_reach_the_caller() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no space for logs")

    handler = Broken()
    logging.getLogger("twoclocks.client").addHandler(handler)
    try:
        Ledger().say("cause", "line")
    finally:
        logging.getLogger("twoclocks.client").removeHandler(handler)


class HostileError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


def test_any_value_and_exception_gives_one_short_line() -> None:
    assert shown(HostileError()) == "a value of type HostileError"
    assert shown(10**5000) == "a value of type int"
    assert shown("a\nb" * 50) == "'a\\nb" + "a\\nb" * 13 + "..."
    assert one_line(HostileError()) == "HostileError"
    assert one_line(ValueError("two\nlines")) == "two lines"
    assert one_line(ValueError()) == "ValueError"
