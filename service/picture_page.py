"""GET /pictures/{name}: pictures that belong to recent answers, kept in memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from jobs.problems import Problem
from service.deps import PicturesDep
from service.problems import problem_responses

PNG = "image/png"
FOREVER = "public, max-age=31536000, immutable"

router = APIRouter(tags=["diagnosis"])


@router.get(
    "/pictures/{name}",
    operation_id="picture",
    summary="The picture of a diagnosis",
    response_class=Response,
    responses={
        200: {
            "description": "A PNG image",
            "content": {PNG: {"schema": {"type": "string", "format": "binary"}}},
        },
        **problem_responses("unauthorized", "not_found"),
    },
)
async def picture(
    name: Annotated[str, Path(description="as the answer gave it", examples=["0" * 32 + ".png"])],
    pictures: PicturesDep,
) -> Response:
    """Only the most recent pictures are kept; ask for the diagnosis again if one is gone."""
    png = pictures.get(name.removesuffix(".png").encode()) if name.endswith(".png") else None
    if png is None:
        raise Problem("not_found", "there is no such picture, or it is no longer kept")
    return Response(png, media_type=PNG, headers={"Cache-Control": FOREVER})
