"""``python -m service``: serve until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence

import uvicorn
from pydantic import ValidationError

from service.app import create_app
from service.protocol import BoundedHttp
from service.settings import Settings

GRACE_SECONDS = 1
"""How long running requests may go on after the signal to stop."""


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        settings = _settings(arguments)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            name = "_".join(map(str, item["loc"])).upper().removeprefix("ANGLEWISE_")
            print(f"ANGLEWISE_{name}: {item['msg']}", file=sys.stderr)
        return 2
    if settings.exposed:
        print(
            f"refusing to serve {settings.host} without API keys: set ANGLEWISE_API_KEYS to the SHA-256 of "
            "each key (hex, comma-separated), or ANGLEWISE_ALLOW_INSECURE=1 if others are kept out",
            file=sys.stderr,
        )
        return 2
    app = create_app(settings)
    gc.freeze()  # modules and routes stay: full collections would pause answers to look at them
    uvicorn.run(
        app,
        host=settings.host,
        port=settings.port,
        http=BoundedHttp,
        log_level=settings.log_level.lower(),
        access_log=settings.log_level in ("DEBUG", "INFO"),
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
    )
    return 0


def _settings(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="python -m service", description="Serve anglewise over HTTP.")
    parser.add_argument("--host", help="address to bind (ANGLEWISE_HOST, default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to bind (ANGLEWISE_PORT or PORT, default 8000)")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    return Settings(**given)
