"""The S3 fault gateway between real S3 clients (obstore, pyarrow) and a real S3 server (moto): each effect does what
its name says, says how often it did, and without rules nothing is changed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError
from obstore.store import S3Store

from shaketable.chaos.errors import ExperimentError
from shaketable.chaos.storage.rules import Effect, Rule
from shaketable.chaos.storage.server import KEYS, make_bucket
from shaketable.chaos.storage.server import s3_server as own_server
from shaketable.suites.tests.rigs.s3_rig import s3, s3_server

pytest.importorskip("aiohttp")
from shaketable.chaos.storage.gateway import Gateway

__all__ = ["s3", "s3_server"]


@pytest.fixture
def gateway(s3_server: str) -> Iterator[Gateway]:
    with Gateway(s3_server) as gateway:
        yield gateway


def store_at(gateway: Gateway, bucket: str, retries: int = 0) -> S3Store:
    return S3Store(
        bucket.removeprefix("s3://"),
        endpoint=gateway.endpoint,
        access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        client_options={"allow_http": True, "timeout": timedelta(seconds=60)},
        retry_config={"max_retries": retries, "backoff": {"init_backoff": timedelta(milliseconds=20)}},
    )


@pytest.fixture
def store(gateway: Gateway, s3: str) -> S3Store:
    return store_at(gateway, s3)


def test_without_rules_everything_passes_as_it_is(store: S3Store, gateway: Gateway) -> None:
    # in parts
    data = os.urandom(11 << 20)
    obstore.put(store, "a b/ü+%.bin", data)
    assert bytes(obstore.get(store, "a b/ü+%.bin").bytes()) == data
    assert bytes(obstore.get_range(store, "a b/ü+%.bin", start=5, length=7)) == data[5:12]
    assert [meta["path"] for meta in obstore.list(store, "a b").collect()] == ["a b/ü+%.bin"]
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a b/ü+%.bin", b"x", mode="create", use_multipart=False)
    assert gateway.counts() == {} and gateway.requests > 5


@pytest.mark.parametrize(
    ("effect", "error", "words"),
    [
        ("slow_down", GenericError, "SlowDown"),
        ("internal_error", GenericError, "InternalError"),
        ("expired_credentials", PermissionDeniedError, "ExpiredToken"),
        ("outage", GenericError, ""),
        ("reset", GenericError, ""),
    ],
)
def test_a_refused_request_is_not_carried_out(
    store: S3Store, gateway: Gateway, effect: Any, error: type[BaseError], words: str
) -> None:
    struck = gateway.add(Rule(effect, methods=("PUT",)))
    with pytest.raises(error, match=words):
        obstore.put(store, "k", b"x" * 100_000, use_multipart=False)
    assert (struck.done, struck.hits[0].split("/")[-1]) == (1, "k")
    gateway.remove(struck)
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "k")


def test_a_lost_answer_is_a_request_carried_out(store: S3Store, gateway: Gateway) -> None:
    struck = gateway.add(Rule("lose_answer", methods=("PUT",), times=1))
    with pytest.raises(GenericError):
        obstore.put(store, "k", b"mine", mode="create", use_multipart=False)
    assert struck.done == 1
    # `times` are used up, so the answer comes
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "k", b"mine", mode="create", use_multipart=False)


def test_a_truncated_answer_is_an_error_and_not_a_short_file(store: S3Store, gateway: Gateway) -> None:
    obstore.put(store, "k", b"x" * 1_000_000)
    struck = gateway.add(Rule("truncate_answer", methods=("GET",), after_bytes=1000))
    with pytest.raises(BaseError):
        obstore.get(store, "k").bytes()
    assert struck.done >= 1


def test_latency_and_bandwidth_take_their_time(store: S3Store, gateway: Gateway) -> None:
    slow = gateway.add(Rule("latency", latency_s=0.4))
    began = time.monotonic()
    obstore.put(store, "k", b"x")
    assert time.monotonic() - began >= 0.4
    gateway.remove(slow)
    gateway.add(Rule("bandwidth", bytes_per_s=1_000_000))
    began = time.monotonic()
    obstore.put(store, "k", b"x" * 500_000, use_multipart=False)
    assert 0.5 <= time.monotonic() - began < 30


def test_a_rule_hits_only_what_it_is_about(store: S3Store, gateway: Gateway) -> None:
    struck = gateway.add(Rule("slow_down", methods=("PUT",), key="*/log/*", min_bytes=10))
    obstore.put(store, "checkpoints/a", b"x" * 100)
    obstore.put(store, "log/1", b"x")
    assert struck.done == 0
    with pytest.raises(GenericError):
        obstore.put(store, "log/1", b"x" * 100)


def test_the_same_seed_hits_the_same_requests_whatever_their_order() -> None:
    from shaketable.chaos.storage.rules import Struck

    def hit(order: list[int]) -> set[str]:
        struck = Struck(Rule("slow_down", probability=0.3, seed=7))
        return {str(key) for key in order if struck.strikes("PUT", str(key), 0)}

    forward, backward = hit(list(range(200))), hit(list(range(199, -1, -1)))
    assert forward == backward and 30 < len(forward) < 90


def test_a_client_that_retries_gets_through_a_fifth_of_failures(gateway: Gateway, s3: str) -> None:
    effects: tuple[Effect, ...] = ("slow_down", "reset")
    struck = [gateway.add(Rule(effect, probability=0.1, seed=seed)) for seed, effect in enumerate(effects)]
    data, store = os.urandom(12 << 20), store_at(gateway, s3, retries=10)
    for name in ("a", "b"):
        obstore.put(store, name, data)
        assert bytes(obstore.get(store, name).bytes()) == data
    # which are hit is chance, as the bucket's name is; not that some are
    for name in map(str, range(100)):
        obstore.put(store, name, b"x")
    assert sum(each.done for each in struck) >= 3


def test_pyarrow_s_client_is_hurt_as_well(gateway: Gateway, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = pytest.importorskip("pyarrow.fs")
    client = fs.S3FileSystem(
        endpoint_override=gateway.endpoint,
        access_key=KEYS["AWS_ACCESS_KEY_ID"],
        secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        region=KEYS["AWS_REGION"],
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
        request_timeout=30,
        connect_timeout=10,
    )
    path = f"{s3.removeprefix('s3://')}/run/file"
    with client.open_output_stream(path) as stream:
        stream.write(b"hello")
    with client.open_input_stream(path) as stream:
        assert stream.read() == b"hello"
    struck = gateway.add(Rule("slow_down", methods=("GET", "HEAD")))
    with pytest.raises(OSError, match=r"SLOW_DOWN|SlowDown|503"):
        client.open_input_stream(path).read()
    assert struck.done >= 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"effect": "flood"}, "is none of slow_down"),
        ({"effect": "reset", "probability": 0}, "probability 0"),
        ({"effect": "latency"}, "needs latency_s"),
        ({"effect": "bandwidth"}, "needs bytes_per_s"),
    ],
)
def test_a_rule_that_could_do_nothing_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperimentError, match=words):
        Rule(**fields)


def test_the_server_of_the_harness_leaves_the_console_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), own_server() as endpoint:
        make_bucket(endpoint, "quiet")
    assert [record.getMessage() for record in caplog.records if record.name == "werkzeug"] == []
