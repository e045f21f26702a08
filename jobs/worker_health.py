"""``python -m jobs.worker_health``: status 0 if a worker of this machine is alive, for health checks."""

from __future__ import annotations

import socket
import sys

from jobs.broker import BrokerUnavailable
from jobs.live import Live
from jobs.settings import JobSettings


def main() -> int:
    settings = JobSettings()
    if settings.broker_url is None:
        print("ANGLEWISE_BROKER_URL is not set", file=sys.stderr)
        return 2
    live = Live(settings.broker_url)
    try:
        here = [worker for worker in live.workers() if worker.host == socket.gethostname()]
    except BrokerUnavailable as error:
        print(f"the broker does not answer: {error}", file=sys.stderr)
        return 1
    finally:
        live.close()
    print(f"{len(here)} worker(s) of this machine")
    return 0 if here else 1


if __name__ == "__main__":
    sys.exit(main())
