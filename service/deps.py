"""Dependencies of routes, as names that read well in their signatures."""

from __future__ import annotations

from typing import Annotated, TypedDict, cast

from fastapi import Depends
from starlette.requests import Request

from service.engine import Engine
from service.settings import Settings


class State(TypedDict):
    """What the application's lifespan provides."""

    engine: Engine
    settings: Settings


def _engine(request: Request) -> Engine:
    return cast(Engine, request.state.engine)


EngineDep = Annotated[Engine, Depends(_engine)]
