"""Interactive documentation without any outside request: Swagger UI from an installed package."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.responses import FileResponse, HTMLResponse

ASSETS = files("fastapi_offline") / "static"
ICON = "data:,"
POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; "
    "script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'"
)

router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs() -> HTMLResponse:
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="anglewise",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url=ICON,
        swagger_ui_parameters={"validatorUrl": None, "tryItOutEnabled": True},
    )
    page.headers["Content-Security-Policy"] = POLICY
    return page


@router.get("/docs/swagger-ui-bundle.js")
async def script() -> FileResponse:
    return FileResponse(str(ASSETS / "swagger-ui-bundle.js"), media_type="text/javascript")


@router.get("/docs/swagger-ui.css")
async def style() -> FileResponse:
    return FileResponse(str(ASSETS / "swagger-ui.css"), media_type="text/css")
