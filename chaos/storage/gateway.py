"""The S3 fault gateway: a reverse proxy between any S3 client and any S3 endpoint that hurts requests by rules.

Rules can be added and taken away while it runs, and each counts what it did. The client is pointed at `endpoint`; what
it signed is passed on as it is, Host included, so the endpoint behind has to accept any Host and path-style addresses,
as MinIO, Ceph and moto do. Runs on a thread of its own; needs the extra `storage` (aiohttp).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any
from urllib.parse import unquote

import aiohttp
from aiohttp import web
from yarl import URL

from shaketable.chaos.storage.rules import Rule, Struck
from shaketable.clusters.protocol import LOOPBACK

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "expect"})
_CHUNK = 64 << 10
_STARTED_WITHIN_S = 30.0
_ERRORS = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "internal_error": (500, "InternalError", "We encountered an internal error. Please try again."),
    "expired_credentials": (403, "ExpiredToken", "The provided token has expired."),
}


class Gateway:
    """`with Gateway(upstream) as gateway:` point the client at `gateway.endpoint`, `gateway.add(Rule(...))`. `host`:
    this machine's address, at which its clients reach it."""

    def __init__(self, upstream: str, host: str = LOOPBACK) -> None:
        self.upstream, self._host = upstream.rstrip("/"), host
        self.endpoint = ""
        self.requests = 0
        self._struck: tuple[Struck, ...] = ()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._up: Future[None] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="s3-gateway", daemon=True)

    def __enter__(self) -> Gateway:
        self._thread.start()
        self._up.result(_STARTED_WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(_STARTED_WITHIN_S)

    # ---- rules, from any thread

    def add(self, rule: Rule) -> Struck:
        """In force for every request that comes from now on. What is returned counts."""
        struck = Struck(rule)
        with self._lock:
            self._struck = (*self._struck, struck)
        return struck

    def remove(self, struck: Struck) -> None:
        with self._lock:
            self._struck = tuple(each for each in self._struck if each is not struck)

    def counts(self) -> dict[str, int]:
        """How many requests each effect in force has hit."""
        found: dict[str, int] = {}
        for struck in self._struck:
            found[struck.rule.effect] = found.get(struck.rule.effect, 0) + struck.done
        return found

    # ---- the proxy, on its own thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001  (whoever waits for the start is told)
            if not self._up.done():
                self._up.set_exception(error)
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False, connector=connector) as self._session:
            runner = web.ServerRunner(web.Server(self._handle))
            await runner.setup()
            site = web.TCPSite(runner, self._host, 0, shutdown_timeout=1.0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.endpoint = f"http://{host}:{port}"
            self._up.set_result(None)
            await self._over.wait()
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests += 1
        key, size = unquote(request.path).lstrip("/"), request.content_length or 0
        with self._lock:
            hit = [struck.rule for struck in self._struck if struck.strikes(request.method, key, size)]
        rules: dict[str, Rule] = {rule.effect: rule for rule in hit}
        if "latency" in rules:
            await asyncio.sleep(rules["latency"].latency_s)
        if "outage" in rules:
            return _hang_up(request)
        for effect, (status, code, message) in _ERRORS.items():
            if effect in rules:
                async for _ in request.content.iter_chunked(_CHUNK):
                    # a client whose body is not taken sees a broken pipe instead of the answer
                    pass
                return _refusal(request, status, code, message, key)
        return await self._pass_on(request, rules)

    async def _pass_on(self, request: web.BaseRequest, rules: dict[str, Rule]) -> web.StreamResponse:
        rate = rules["bandwidth"].bytes_per_s if "bandwidth" in rules else None
        body = b""
        async for part in _slowly(request.content.iter_chunked(_CHUNK), rate):
            body += part
            if "reset" in rules and len(body) > rules["reset"].after_bytes:
                return _hang_up(request)
        if "reset" in rules:
            return _hang_up(request)
        url = URL(self.upstream + request.raw_path, encoded=True)
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP]
        try:
            async with self._session.request(
                request.method,
                url,
                headers=headers,
                data=body or None,
                allow_redirects=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            ) as answer:
                if "lose_answer" in rules:
                    await answer.read()
                    return _hang_up(request)
                return await _answered(request, answer, rules, rate)
        except aiohttp.ClientError:
            # the endpoint behind is gone: that is what the client would see
            return _hang_up(request)


async def _answered(
    request: web.BaseRequest, answer: aiohttp.ClientResponse, rules: dict[str, Rule], rate: float | None
) -> web.StreamResponse:
    headers = [(k, v) for k, v in answer.headers.items() if k.lower() not in _HOP_BY_HOP]
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in headers:
        response.headers.add(name, value)
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    left = rules["truncate_answer"].after_bytes if "truncate_answer" in rules else None
    async for part in _slowly(answer.content.iter_chunked(_CHUNK), rate):
        if left is not None and len(part) > left:
            await response.write(part[:left])
            # for what was written to leave before the reset
            await asyncio.sleep(0.02)
            _hang_up(request)
            return response
        left = None if left is None else left - len(part)
        await response.write(part)
    await response.write_eof()
    return response


async def _slowly(parts: AsyncIterator[bytes], bytes_per_s: float | None) -> AsyncIterator[bytes]:
    async for part in parts:
        if bytes_per_s is not None:
            await asyncio.sleep(len(part) / bytes_per_s)
        yield part


def _refusal(request: web.BaseRequest, status: int, code: str, message: str, key: str) -> web.Response:
    resource = key.replace("&", "&amp;").replace("<", "&lt;")
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message>'
        f"<Resource>/{resource}</Resource><RequestId>shaketable</RequestId></Error>"
    )
    body = b"" if request.method == "HEAD" else text.encode()
    return web.Response(status=status, body=body, content_type="application/xml")


def _hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """With a reset, as a machine that is gone or a balancer that gives up: no answer, no orderly end."""
    transport: Any = request.transport
    if transport is not None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    # goes nowhere: the connection is closed
    return web.Response(status=500)
