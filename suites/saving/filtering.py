"""The kernel asks us before a process writes, syncs or renames a file: a seccomp filter with a listener.

It sees the system calls of every process of the job, in whatever language, and no others. A call waits until it is
answered, so a process that is killed meanwhile has not made it. Not seen: what is written through mapped memory or
io_uring. Linux 5.5 or later, on x86-64 and ARM64.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

# of each kind: the calls by number, and which argument tells the file: a descriptor, or a directory and a path
Place = tuple[str, int]
_DESCRIPTOR = "descriptor"
_PATH = "path"
_AT = "at"
CALLS: dict[str, dict[int, tuple[str, Place]]] = {
    "x86_64": {
        1: ("write", (_DESCRIPTOR, 0)),
        18: ("write", (_DESCRIPTOR, 0)),
        20: ("write", (_DESCRIPTOR, 0)),
        40: ("write", (_DESCRIPTOR, 0)),
        76: ("write", (_PATH, 0)),
        77: ("write", (_DESCRIPTOR, 0)),
        296: ("write", (_DESCRIPTOR, 0)),
        326: ("write", (_DESCRIPTOR, 2)),
        328: ("write", (_DESCRIPTOR, 0)),
        74: ("fsync", (_DESCRIPTOR, 0)),
        75: ("fsync", (_DESCRIPTOR, 0)),
        82: ("rename", (_PATH, 1)),
        264: ("rename", (_AT, 2)),
        316: ("rename", (_AT, 2)),
        86: ("rename", (_PATH, 1)),
        265: ("rename", (_AT, 2)),
    },
    "aarch64": {
        64: ("write", (_DESCRIPTOR, 0)),
        66: ("write", (_DESCRIPTOR, 0)),
        68: ("write", (_DESCRIPTOR, 0)),
        70: ("write", (_DESCRIPTOR, 0)),
        71: ("write", (_DESCRIPTOR, 0)),
        45: ("write", (_PATH, 0)),
        46: ("write", (_DESCRIPTOR, 0)),
        285: ("write", (_DESCRIPTOR, 2)),
        287: ("write", (_DESCRIPTOR, 0)),
        82: ("fsync", (_DESCRIPTOR, 0)),
        83: ("fsync", (_DESCRIPTOR, 0)),
        38: ("rename", (_AT, 2)),
        276: ("rename", (_AT, 2)),
        37: ("rename", (_AT, 2)),
    },
}
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
# write(2) itself, whose bytes may be what the job prints
WRITE = {"x86_64": 1, "aarch64": 64}
_NO_NEW_PRIVS, _SET_MODE_FILTER, _NEW_LISTENER = 38, 1, 8
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND, _GO_ON = 0xC0502100, 0xC0182101, 1
_ASKED, _ANSWER = struct.Struct("=QII iIQ 6Q"), struct.Struct("=QqiI")
_AT_CWD = -100
MOST_TEXT = 4096


class _Instruction(ctypes.Structure):
    _fields_ = (("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte), ("k", ctypes.c_uint))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(_Instruction)))


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that waits for its answer. `thread` is the kernel's id of who makes it."""

    id: int
    thread: int
    kind: str
    place: Place
    number: int
    arguments: tuple[int, ...]


def supported() -> bool:
    return sys.platform == "linux" and platform.machine() in CALLS


def install() -> int:
    """In this process and all that it starts, for good. The descriptor of the listener; raises OSError."""
    machine = platform.machine()
    libc = ctypes.CDLL(None, use_errno=True)
    program = _program(_ARCH[machine], sorted(CALLS[machine]))
    described = ctypes.byref(_Program(len(program), program))
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        listener: int = libc.syscall(_SECCOMP[machine], _SET_MODE_FILTER, _NEW_LISTENER, described)
        if listener >= 0:
            return listener
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _program(architecture: int, numbers: list[int]) -> ctypes.Array[_Instruction]:
    """Asks for these calls of this architecture, allows all others."""
    load, jump_if_equal, answer = 0x20, 0x15, 0x06
    left = len(numbers)
    lines = [(load, 0, 0, 4), (jump_if_equal, 0, left + 1, architecture), (load, 0, 0, 0)]
    lines += [(jump_if_equal, left - each, 0, number) for each, number in enumerate(numbers)]
    lines += [(answer, 0, 0, _ALLOW), (answer, 0, 0, _ASK)]
    return (_Instruction * len(lines))(*(_Instruction(*line) for line in lines))


def receive(listener: int) -> Call | None:
    """The next call; None if who made it is gone already."""
    buffer = bytearray(_ASKED.size)
    try:
        fcntl.ioctl(listener, _RECEIVE, buffer)
    except (FileNotFoundError, InterruptedError):
        return None
    call_id, thread, _, number, _, _, *arguments = _ASKED.unpack(buffer)
    kind, place = CALLS[platform.machine()][number]
    return Call(call_id, thread, kind, place, number, tuple(arguments))


def let_go(listener: int, call: Call) -> None:
    try:
        fcntl.ioctl(listener, _SEND, bytearray(_ANSWER.pack(call.id, 0, 0, _GO_ON)))
    except FileNotFoundError:
        # it was killed meanwhile
        return


def file_of(call: Call) -> str:
    """The file that it changes, of a rename the new name; empty where that cannot be told."""
    how, position = call.place
    try:
        if how == _DESCRIPTOR:
            return str(Path(f"/proc/{call.thread}/fd/{_signed(call.arguments[position])}").readlink())
        named = _memory(call.thread, call.arguments[position + (how == _AT)], MOST_TEXT).partition(b"\0")[0]
        return os.path.normpath(_directory(call) / os.fsdecode(named))
    except OSError:
        return ""


def _directory(call: Call) -> Path:
    how, position = call.place
    descriptor = _signed(call.arguments[position]) if how == _AT else _AT_CWD
    inside = "cwd" if descriptor == _AT_CWD else f"fd/{descriptor}"
    return Path(f"/proc/{call.thread}/{inside}").readlink()


def printed(call: Call) -> bytes:
    """What it is about to write to its stdout or stderr, in part; nothing of other calls."""
    if call.number != WRITE[platform.machine()] or call.arguments[0] not in (1, 2):
        return b""
    try:
        return _memory(call.thread, call.arguments[1], min(call.arguments[2], MOST_TEXT))
    except OSError:
        return b""


def _memory(thread: int, address: int, size: int) -> bytes:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(size)


def _signed(number: int) -> int:
    return ctypes.c_int(number).value


def main(arguments: list[str]) -> None:
    """`python -m shaketable.suites.saving.filtering SOCKET COMMAND...` becomes COMMAND; the listener goes out through
    the socket, or the number of an error."""
    with socket.socket(fileno=int(arguments[0])) as out:
        try:
            listener = install()
        except OSError as error:
            out.send(str(error.errno).encode())
            sys.exit(1)
        socket.send_fds(out, [b"0"], [listener])
        os.close(listener)
    os.execvp(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
