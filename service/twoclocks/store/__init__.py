"""Everything that says SELECT or INSERT: runs, reports, clock states, forecasts, directives, members.

`Store` is what other rooms use; the wire's models go in and come out.
"""

from twoclocks.errors import UnavailableError
from twoclocks.store.reports import csv_lines
from twoclocks.store.store import Pulse, Store

__all__ = ["Pulse", "Store", "UnavailableError", "csv_lines"]
