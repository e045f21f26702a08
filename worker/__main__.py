"""``python -m worker``: do jobs until told to stop."""

from __future__ import annotations

import sys

from pydantic import ValidationError

from jobs.settings import JobSettings
from worker.logs import log_to_stderr
from worker.node import run


def main() -> int:
    log_to_stderr("workers")
    try:
        settings = JobSettings()
    except ValidationError as error:
        print(f"wrong settings: {error}", file=sys.stderr)
        return 2
    return run(settings)


if __name__ == "__main__":
    sys.exit(main())
