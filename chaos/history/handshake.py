"""What a witness and the harness's collector agree on: where to send events, how to prove who one is, how
long a line may be. The secret itself never travels: the first line of a connection is a keyed digest over the
writer's name, and everything after it is plain JSON lines of that writer alone. Nothing here unpickles
anything.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import ClassVar

import msgspec

# environment variable that carries the dumped configuration to a child
ENV = "SHAKETABLE_WITNESS"
# a longer line is cut down by the witness and refused by the collector
MAX_LINE_BYTES = 1 << 20
MAX_HELLO_BYTES = 1024
HARNESS = "harness"

_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class WitnessConfig:
    """Where to record: a directory for the files, the collector's address, and the secret of this
    experiment."""

    ENV: ClassVar[str] = ENV

    directory: str
    host: str
    port: int
    secret: str

    def dump(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def load(cls, text: str) -> WitnessConfig:
        return msgspec.json.decode(text, type=cls)


class Hello(msgspec.Struct, frozen=True):
    """The first line of a connection. `proof` shows that the sender knows the secret."""

    writer: str
    proof: str


def check_name(name: str) -> str:
    """A name that is safe as a file name. It comes from our own code, so anything else is a bug in it."""
    if not _name.fullmatch(name):
        raise ValueError(f"witness name {name!r}: use letters, digits, '_', '.', '-', at most 100 of them")
    return name


def _proof(secret: str, writer: str) -> str:
    return hmac.new(secret.encode(), b"shaketable witness " + writer.encode(), hashlib.sha256).hexdigest()


def hello(secret: str, writer: str) -> bytes:
    return msgspec.json.encode(Hello(writer, _proof(secret, writer))) + b"\n"


def authenticated(secret: str, line: bytes) -> str | None:
    """The writer that proved to know the secret, else None. Nobody but the harness itself may speak as it."""
    try:
        claim = msgspec.json.decode(line, type=Hello)
    except msgspec.DecodeError:
        return None
    genuine = hmac.compare_digest(_proof(secret, claim.writer).encode(), claim.proof.encode())
    if not genuine or claim.writer == HARNESS or not _name.fullmatch(claim.writer):
        return None
    return claim.writer
