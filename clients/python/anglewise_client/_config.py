"""Where the service is and which key it wants: arguments first, then the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from anglewise_client._call import Config

DEFAULT_URL = "http://127.0.0.1:8000"
URL_VARIABLE, KEY_VARIABLE = "ANGLEWISE_URL", "ANGLEWISE_API_KEY"


def configured(
    base_url: str | None,
    api_key: str | None,
    timeout: float | None,
    retries: int,
    headers: Mapping[str, str] | None,
) -> Config:
    """
    Raises:
        ValueError: an argument or the environment has an impossible value.
    """
    return Config(
        base_url=base_url or os.environ.get(URL_VARIABLE) or DEFAULT_URL,
        api_key=api_key or os.environ.get(KEY_VARIABLE) or None,
        timeout=timeout,
        retries=retries,
        headers=dict(headers or {}),
    )
