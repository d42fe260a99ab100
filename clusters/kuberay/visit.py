"""The harness's side of a stay on Kubernetes: what is made there, by whom it is guarded, and the end of it all.
Experiments run in the driver's pod; what comes of them is fetched from there.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar, cast

import msgspec
import stamina

from shaketable.clusters.kuberay import manifests
from shaketable.clusters.kuberay.kubernetes import Kubernetes
from shaketable.clusters.kuberay.manifests import Stay
from shaketable.clusters.kuberay.watchdog import Watchdog, now
from shaketable.clusters.protocol import ClusterError

POD_UP_WITHIN_S = 180.0
CONNECTED_WITHIN_S, TRIES = 60.0, 5
OUTPUT, CODE = "/tmp/shaketable/output", "/tmp/shaketable/code"
T = TypeVar("T")
LOOK_S = 0.5


def _started() -> str:
    """A script that starts its arguments as a process of its own, which outlives the connection, and says its pid."""
    done = f"echo $? >{CODE}.new; mv {CODE}.new {CODE}"
    return (
        f"mkdir -p {Path(OUTPUT).parent} && rm -f {CODE} && : >{OUTPUT} &&"
        f' setsid sh -c \'"$@" >{OUTPUT} 2>&1; {done}\' sh "$@" </dev/null >/dev/null 2>&1 & echo $!'
    )


class _Counting(io.RawIOBase):
    """Counts what goes on to `output`."""

    def __init__(self, output: BinaryIO) -> None:
        self._output, self.count = output, 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._output.write(data)
        self._output.flush()
        self.count += len(data)
        return len(data)


class Visit:
    """`with Visit(context, namespace, image) as visit: visit.run([...])`. `namespace` empty: one of its own, which goes
    with it. Raises ClusterError."""

    def __init__(self, context: str, namespace: str, image: str) -> None:
        run = uuid.uuid4().hex[:10]
        self.stay = Stay(run, namespace or f"shaketable-{run}", not namespace, image)
        self.kubernetes = Kubernetes.connected(self.stay.namespace, context)
        self._context = context

    def __enter__(self) -> Self:
        # Nothing is made unguarded.
        self._watchdog = Watchdog(self.stay, self._context)
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def _make(self) -> None:
        """The lease before all that it owns, and the pod that watches it before anything large."""
        kubernetes = self.kubernetes
        if self.stay.own_namespace:
            kubernetes.create(manifests.namespace(self.stay))
        owner = kubernetes.create(manifests.lease(self.stay))
        self.stay = msgspec.structs.replace(self.stay, owner=owner)
        kubernetes.renew(self.stay.name, now())
        kubernetes.check_kuberay()
        for document in (*manifests.account(self.stay), manifests.driver_pod(self.stay)):
            kubernetes.create(document)
        self._wait_for_pod()

    def _wait_for_pod(self) -> None:
        deadline_s = time.monotonic() + POD_UP_WITHIN_S
        while not (pod := self.kubernetes.pod(self.stay.name)) or not pod.ready:
            trouble = pod.trouble if pod else "it is gone"
            if time.monotonic() > deadline_s or (pod and pod.trouble and not pod.trouble.startswith("not placed")):
                raise ClusterError(
                    f"the driver's pod {self.stay.name} did not start within {POD_UP_WITHIN_S:g} s:"
                    f" {trouble or 'no reason is given'}; image {self.stay.image}"
                )
            time.sleep(LOOK_S)

    # -- in the driver's pod

    def run(self, command: Sequence[str], output: BinaryIO) -> int:
        """Its exit code. What it prints goes to `output` as it comes; a connection that breaks is made anew."""
        pid = self._said("sh", "-c", _started(), "sh", *command)
        follow = ("tail", "--sleep-interval=0.2", f"--pid={pid}", "--follow", OUTPUT)
        shown, tried_s = _Counting(output), time.monotonic()
        while not (code := self._said("sh", "-c", f"cat {CODE} 2>/dev/null || true")):
            before = shown.count
            with contextlib.suppress(ClusterError):
                self.kubernetes.execute(
                    self.stay.name, *follow, f"--bytes=+{before + 1}", stdout=cast(BinaryIO, shown), within_s=None
                )
            if shown.count > before:
                tried_s = time.monotonic()
            elif time.monotonic() - tried_s > CONNECTED_WITHIN_S:
                raise ClusterError(f"what runs in the driver's pod {self.stay.name} could not be heard any more")
        rest = self._tried(lambda: self._bytes("tail", f"--bytes=+{shown.count + 1}", OUTPUT))
        output.write(rest)
        output.flush()
        return int(code)

    def _said(self, *command: str) -> str:
        return self._tried(lambda: self._bytes(*command)).decode(errors="replace").strip()

    def _bytes(self, *command: str) -> bytes:
        code, said = self.kubernetes.execute(self.stay.name, *command)
        if code:
            raise ClusterError(f"`{command[0]}` in the driver's pod ended with {code}: {said.decode(errors='replace')}")
        return said

    @staticmethod
    def _tried(ask: Callable[[], T]) -> T:
        """A connection may break at any time. Nobody is told of a try that is followed by another."""
        stamina.instrumentation.set_on_retry_hooks(())
        for attempt in stamina.retry_context(ClusterError, attempts=TRIES, wait_initial=0.5, timeout=None):
            with attempt:
                return ask()
        raise AssertionError("the last try returns or raises")

    def bring(self, files: Mapping[str, Path]) -> None:
        """To these paths there."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, path in files.items():
                archive.add(path, arcname=name.lstrip("/"))
        unpack = ("tar", "-C", "/", "-x", "--no-overwrite-dir", "-f", "-")
        code, said = self.kubernetes.execute(self.stay.name, *unpack, stdin=packed.getvalue())
        if code:
            raise ClusterError(f"files could not be brought to the driver's pod: {said.decode(errors='replace')}")

    def fetch(self, there: str, here: Path) -> None:
        """Everything below a directory of the pod."""
        with tarfile.open(fileobj=self._tried(lambda: self._packed(there))) as archive:
            archive.extractall(here, filter="data")

    def _packed(self, there: str) -> BinaryIO:
        packed = io.BytesIO()
        pack = ("tar", "-C", there, "-c", "-z", "-f", "-", ".")
        # what is still being written changes meanwhile, and tar says so with 1
        code, _ = self.kubernetes.execute(self.stay.name, *pack, stdout=packed, within_s=None)
        if code > 1:
            raise ClusterError(f"the results could not be fetched from {there} in the driver's pod")
        packed.seek(0)
        return packed

    # -- the end

    def close(self) -> None:
        """Returns when nothing of it is left. Idempotent."""
        self._watchdog.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
