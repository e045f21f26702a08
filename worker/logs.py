"""The log of a worker's processes: lines on standard error."""

from __future__ import annotations

import logging
import sys

CHATTER = ("celery.worker.strategy", "celery.app.trace")
"""Loggers that tell of every message; the job's own lines say more."""


def log_to_stderr(name: str) -> None:
    """Log from now on under ``name``, warnings of libraries too."""
    form = f"%(asctime)s %(levelname)s {name} %(process)d: %(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=form)
    logging.captureWarnings(True)
    for chatter in CHATTER:
        logging.getLogger(chatter).setLevel(logging.WARNING)
