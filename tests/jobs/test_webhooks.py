"""Webhooks: whom they call, how they sign, how often they try."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from jobs import addresses, webhook_call
from jobs.addresses import BadAddress, is_public, parse_url, resolve
from jobs.ids import new_job_id
from jobs.journal import Journal
from jobs.record import JobRecord, Submission
from jobs.settings import JobOptions
from jobs.states import Reason, ReasonCode
from jobs.store import ObjectStore
from jobs.webhook_call import call, signature
from jobs.webhooks import PAUSES, deliver_due, message, pause_after

START = datetime(2026, 1, 1, tzinfo=UTC)
OPTIONS = JobOptions(webhook_secret=SecretStr("a secret"))


class TestAddresses:
    @pytest.mark.parametrize(
        "address",
        [
            *(
                "127.0.0.1",
                "10.0.0.1",
                "172.16.9.9",
                "192.168.1.1",
                "169.254.169.254",
                "100.64.0.1",
                "0.0.0.0",
            ),
            *("224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1"),
            *("::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "2001:db8::1", "::127.0.0.1"),
            *("::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::"),
        ],
    )
    def test_not_public(self, address: str) -> None:
        assert not is_public(ipaddress.ip_address(address))

    @pytest.mark.parametrize("address", ["9.9.9.9", "2606:4700::1111", "::ffff:9.9.9.9", "64:ff9b::909:909"])
    def test_public(self, address: str) -> None:
        assert is_public(ipaddress.ip_address(address))

    @pytest.mark.parametrize(
        "url",
        [
            *("ftp://example.org/", "example.org", "http://", "//example.org", "http://:80/", "http://[::1/"),
            *("http://127.0.0.1/", "http://[::1]/", "http://[::ffff:10.1.1.1]:80/", "https://localhost/x"),
            *(
                "http://2130706433/",
                "http://0x7f.1/",
                "http://127.1/",
                "http://LOCALHOST./",
                "http://a.local/",
            ),
            *("http://user:secret@example.org/", "http://example.org/#a", "http://example.org:0/"),
            *(
                "http://example.org:99999/",
                "http://exa mple.org/",
                "http://example.org/\r\nX: y",
                "http://é.org/",
            ),
            *("http://%31%32%37.0.0.1/", "http://127.0.0.1%00.example.org/", "http://exam\\ple.org/"),
            *("http://a..org/", "http://" + "a" * 64 + ".org/", "http://" + "a." * 127 + "org/"),
            "http://example.org/" + "a" * 2048,
        ],
    )
    def test_refused(self, url: str) -> None:
        with pytest.raises(BadAddress):
            parse_url(url)

    def test_parts(self) -> None:
        target = parse_url("https://hooks.example.org:8443/a/b?c=d")
        assert (target.secure, target.host, target.port) == (True, "hooks.example.org", 8443)
        assert target.path == "/a/b?c=d"
        assert parse_url("http://example.org").path == "/"
        assert parse_url("http://127.0.0.1:81/", allow_private=True).port == 81

    def test_one_private_address_is_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lookup(*_: Any, **__: Any) -> Any:
            return [(0, 0, 0, "", (address, 80)) for address in ("9.9.9.9", "10.0.0.1")]

        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        with pytest.raises(BadAddress):
            resolve("rebound.example.org", 80)
        assert resolve("rebound.example.org", 80, allow_private=True) == ["9.9.9.9", "10.0.0.1"]


class TestSignature:
    def test_text(self) -> None:
        expected = hmac.new(b"a secret", b"msg_1.5.{}", hashlib.sha256).digest()
        assert signature("a secret", "msg_1", 5, b"{}") == "v1," + base64.b64encode(expected).decode()

    def test_encoded(self) -> None:
        secret = "whsec_" + base64.b64encode(b"a secret").decode()
        assert signature(secret, "msg_1", 5, b"{}") == signature("a secret", "msg_1", 5, b"{}")


class TestPauses:
    def test_grow(self) -> None:
        assert list(PAUSES) == sorted(PAUSES)

    def test_go_on_for_more_than_a_day(self) -> None:
        assert sum(PAUSES) > 24 * 3600
        assert pause_after(len(PAUSES)) == timedelta(seconds=PAUSES[-1])
        assert pause_after(len(PAUSES) + 1) is None


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it gets, and answers with ``server.status``."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))  # type: ignore[attr-defined]
        self.send_response(self.server.status)  # type: ignore[attr-defined]
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Quietly."""


@pytest.fixture
def receiver() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.got, server.status = [], 200
    server.url = f"http://127.0.0.1:{server.server_address[1]}/hook?a=b"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class TestCall:
    def test_arrives(self, receiver: Any) -> None:
        assert call(receiver.url, b"{}", {"webhook-id": "msg_1"}, allow_private=True) == 200
        [(path, headers, body)] = receiver.got
        assert (path, body) == ("/hook?a=b", b"{}")
        assert headers["webhook-id"] == "msg_1"
        assert headers["Host"] == f"127.0.0.1:{receiver.server_address[1]}"

    def test_follows_no_redirect(self, receiver: Any) -> None:
        receiver.status = 307
        assert call(receiver.url, b"{}", {}, allow_private=True) == 307
        assert len(receiver.got) == 1

    def test_a_name_for_a_private_address_is_not_called(
        self, receiver: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        entry = (0, 0, 0, "", receiver.server_address)
        monkeypatch.setattr(addresses.socket, "getaddrinfo", lambda *_, **__: [entry])
        with pytest.raises(BadAddress):
            call(f"http://hooks.example.org:{receiver.server_address[1]}/", b"{}", {})
        assert receiver.got == []

    def test_ends_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A receiver that never answers is hung up on."""
        monkeypatch.setattr(webhook_call, "CALL_SECONDS", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            with pytest.raises((OSError, http.client.HTTPException)):
                call(url, b"{}", {}, allow_private=True)


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("memory:///")


def ended(store: ObjectStore, url: str | None = "https://hooks.example.org/") -> JobRecord:
    journal, job = Journal(store, lambda: START), new_job_id()
    journal.submit(job, Submission(kind="weights", name="a name", spec_bytes=2, webhook=url), b"{}")
    journal.start(job, "somebody")
    return journal.fail(job, 1, Reason(code=ReasonCode.TIMEOUT, message="it took too long"))


class TestDelivery:
    def test_nobody_to_tell(self, store: ObjectStore) -> None:
        assert deliver_due(store, ended(store, None), OPTIONS)

    def test_signed_message(self, store: ObjectStore, receiver: Any) -> None:
        record = ended(store, receiver.url)
        options = OPTIONS.model_copy(update={"webhook_allow_private": True})
        assert deliver_due(store, record, options, now=START)
        assert deliver_due(store, record, options, now=START + timedelta(days=1))
        [(_, headers, body)] = receiver.got
        document = json.loads(body)
        assert document["type"] == "job.failed"
        assert document["data"]["id"] == record.id
        assert document["data"]["reason"] == {"code": "timeout", "message": "it took too long"}
        sent = int(headers["webhook-timestamp"])
        assert sent == START.timestamp()
        assert headers["webhook-signature"] == signature("a secret", headers["webhook-id"], sent, body)

    def test_tries_again_when_it_is_time(self, store: ObjectStore) -> None:
        record, sent = ended(store), []

        def refuse(url: str, body: bytes, headers: dict[str, str], **_: Any) -> int:
            sent.append((headers["webhook-id"], body))
            return 503

        now = START
        for pause in PAUSES:
            assert not deliver_due(store, record, OPTIONS, now=now, send=refuse)
            tries = len(sent)
            now += timedelta(seconds=pause)
            assert not deliver_due(store, record, OPTIONS, now=now - timedelta(seconds=1), send=refuse)
            assert len(sent) == tries
        assert not deliver_due(store, record, OPTIONS, now=now, send=refuse)
        assert deliver_due(store, record, OPTIONS, now=now, send=refuse)
        assert len(sent) == len(PAUSES) + 1
        assert len(set(sent)) == 1

    def test_no_answer_is_no_delivery(self, store: ObjectStore) -> None:
        record = ended(store)

        def fail(*_: Any, **__: Any) -> int:
            raise ConnectionRefusedError

        assert not deliver_due(store, record, OPTIONS, now=START, send=fail)
        again = START + timedelta(seconds=PAUSES[0])
        assert deliver_due(store, record, OPTIONS, now=again, send=lambda *_, **__: 204)

    def test_gone_is_the_end(self, store: ObjectStore) -> None:
        record = ended(store)
        assert deliver_due(store, record, OPTIONS, now=START, send=lambda *_, **__: 410)

    def test_keepers_do_not_call_together(self, store: ObjectStore) -> None:
        """The second one sees the claim of the first, which has not been answered yet."""
        record = ended(store)

        def send(*_: Any, **__: Any) -> int:
            assert not deliver_due(store, record, OPTIONS, now=START, send=pytest.fail)
            return 200

        assert deliver_due(store, record, OPTIONS, now=START, send=send)

    def test_deleted_with_the_job(self, store: ObjectStore) -> None:
        record = ended(store)
        deliver_due(store, record, OPTIONS, now=START, send=lambda *_, **__: 200)
        Journal(store).delete(record.id)
        assert store.names("") == []

    @pytest.mark.parametrize("answer", [200, 503])
    def test_a_job_deleted_during_the_call_leaves_nothing(self, store: ObjectStore, answer: int) -> None:
        record = ended(store)

        def send(*_: Any, **__: Any) -> int:
            Journal(store).delete(record.id)
            return answer

        assert deliver_due(store, record, OPTIONS, now=START, send=send)
        assert store.names("") == []

    def test_an_answer_is_not_quoted_at_length(
        self, store: ObjectStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        def send(*_: Any, **__: Any) -> int:
            raise http.client.BadStatusLine("\x1b[2J\n" * 10_000)

        assert not deliver_due(store, ended(store), OPTIONS, now=START, send=send)
        [told] = caplog.messages
        assert told.isprintable()
        assert len(told) < 300

    def test_message_is_the_same_every_time(self, store: ObjectStore) -> None:
        record = ended(store)
        assert message(record) == message(Journal(store).read(record.id))
