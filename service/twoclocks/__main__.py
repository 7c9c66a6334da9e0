"""`python -m twoclocks` is the command `twoclocks`."""

import sys

from twoclocks.cli import main

sys.exit(main())
