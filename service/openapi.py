"""``python -m service.openapi`` writes the OpenAPI document to openapi/openapi.json."""

from __future__ import annotations

import json
from pathlib import Path

from service.app import create_app
from service.settings import Settings

PATH = Path(__file__).resolve().parent.parent / "openapi" / "openapi.json"


def render() -> str:
    """The document as it is committed: the same text on every machine, whatever its environment."""
    app = create_app(Settings.model_construct())
    return json.dumps(app.openapi(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    PATH.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
