"""Entry point of `python -m kohort.broker`."""

from __future__ import annotations

import sys

from kohort.broker.process import main

sys.exit(main())
