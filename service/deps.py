"""Dependencies of routes, as names that read well in their signatures."""

from __future__ import annotations

from typing import Annotated, TypedDict, cast

from fastapi import Depends
from starlette.requests import Request

from service.cache import AnswerCache
from service.engine import Engine
from service.settings import Settings
from service.upload import Uploads


class State(TypedDict):
    """What the application's lifespan provides."""

    engine: Engine
    settings: Settings
    pictures: AnswerCache
    uploads: Uploads


def _engine(request: Request) -> Engine:
    return cast(Engine, request.state.engine)


def _pictures(request: Request) -> AnswerCache:
    return cast(AnswerCache, request.state.pictures)


PicturesDep = Annotated[AnswerCache, Depends(_pictures)]
EngineDep = Annotated[Engine, Depends(_engine)]
