"""gs:// and az://: what can be said of them without their emulators. Each opens the store of its kind; and Azure's
protocol, which obstore speaks to an emulator over plain http, against a server that knows just enough of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from obstore.store import AzureStore, GCSStore

from shaketable.runtime.errors import ConfigurationError
from shaketable.runtime.storage import objects
from shaketable.runtime.storage.files import check_writable, locate_run
from shaketable.runtime.storage.objects import ObjectPath

DELETED = (
    b"--batchresponse_1\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n"
    b"HTTP/1.1 202 Accepted\r\nx-ms-request-id: 1\r\n\r\n\r\n--batchresponse_1--\r\n"
)


class Blobs(BaseHTTPRequestHandler):
    """Put, conditionally or not, and the batch in which obstore deletes."""

    protocol_version = "HTTP/1.1"
    server: BlobServer

    def do_PUT(self) -> None:
        data, path = self.rfile.read(int(self.headers["Content-Length"] or 0)), self.path.partition("?")[0]
        conditional = self.headers.get("If-None-Match") == "*" and self.server.honours_conditions
        if conditional and path in self.server.stored:
            self._answer(409)
            return
        self.server.stored[path] = data
        self._answer(201)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        self._answer(202, DELETED, "multipart/mixed; boundary=batchresponse_1")

    def _answer(self, status: int, body: bytes = b"", kind: str = "text/plain") -> None:
        self.send_response(status)
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Content-Type": kind}
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: pytest has enough to show."""


class BlobServer(ThreadingHTTPServer):
    honours_conditions = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Blobs)
        self.stored: dict[str, bytes] = {}


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobServer]:
    with BlobServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://127.0.0.1:{server.server_port}")
        yield server
        objects.forget(ObjectPath("az://container"))
        server.shutdown()


def test_a_run_in_azure_is_opened_where_a_blob_is_created_only_once(azure: BlobServer) -> None:
    run = locate_run("az://container/runs", "mine")
    check_writable(run)
    (probe,) = azure.stored
    assert probe.startswith("/devstoreaccount1/container/runs/mine/.probe-")


def test_an_azure_that_creates_a_blob_twice_is_refused(azure: BlobServer) -> None:
    azure.honours_conditions = False
    with pytest.raises(ConfigurationError, match="does not honour conditional writes"):
        check_writable(locate_run("az://container/runs", "mine"))


def test_gs_and_az_open_the_store_of_their_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    account = {"client_email": "", "private_key": "", "private_key_id": "", "disable_oauth": True}
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    for url, kind in (("gs://bucket/runs", GCSStore), ("az://container/runs", AzureStore)):
        run = locate_run(url, "mine")
        assert isinstance(run, ObjectPath) and isinstance(objects._connect(run.root, large=False), kind)
        assert (run.key, run.name, str(run.parent)) == ("runs/mine", "mine", url)
