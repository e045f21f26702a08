from __future__ import annotations

import re

from starlette.testclient import TestClient


class TestDocs:
    def test_loads_nothing_from_outside(self, client: TestClient) -> None:
        page = client.get("/docs")
        assert page.headers["content-type"].startswith("text/html")
        links = re.findall(r'(?:src|href)="([^"]*)"', page.text) + re.findall(r"url: '([^']*)'", page.text)
        assert len(links) >= 3
        for link in links:
            if not link.startswith("data:"):
                assert "//" not in link
                assert client.get("/" + link.lstrip("/")).status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]

    def test_assets_are_swagger_ui_5(self, client: TestClient) -> None:
        """Older ones do not read OpenAPI 3.1."""
        script = client.get("/docs/swagger-ui-bundle.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert re.search(r'"5\.\d+\.\d+"', script.text)
        assert ".swagger-ui" in client.get("/docs/swagger-ui.css").text
