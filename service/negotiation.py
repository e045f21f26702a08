"""Which of the representations on offer a client wants."""

from __future__ import annotations

from starlette.requests import Request

from jobs.problems import Problem


def negotiate(request: Request, *offered: str) -> str:
    """The media type to answer with; the first one is the answer to ``*/*``.

    Raises:
        Problem: not_acceptable.
    """
    accepted = dict(_media_range(part) for part in (request.headers.get("accept") or "*/*").split(","))
    best = max(offered, key=lambda media_type: _quality(media_type, accepted))
    if _quality(best, accepted) <= 0:
        raise Problem("not_acceptable", f"the answer is {' or '.join(offered)}")
    return best


def _media_range(part: str) -> tuple[str, float]:
    media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = min(1.0, max(0.0, float(value)))
            except ValueError:
                quality = 0.0
    return media_type, quality


def _quality(media_type: str, accepted: dict[str, float]) -> float:
    """The quality of the most specific range that covers the type."""
    whole_type = media_type.partition("/")[0] + "/*"
    return next((accepted[name] for name in (media_type, whole_type, "*/*") if name in accepted), 0.0)
