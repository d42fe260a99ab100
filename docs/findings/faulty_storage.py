"""A local directory behind fsspec whose manifest cannot be written once: the third rewriting of
`checkpoint_manager_snapshot.json` fails as a network file system's does, or its writer is killed in it."""

import os
import signal

import fsspec.implementations.local
import pyarrow.fs

MANIFEST = "checkpoint_manager_snapshot.json"
COUNT = "writes.txt"  # in the run's own directory


class Faulty(fsspec.implementations.local.LocalFileSystem):
    def __init__(self, fault, **more):
        super().__init__(**more)
        self.fault = fault

    def _open(self, path, mode="rb", **more):
        if not (path.endswith(MANIFEST) and "w" in mode and self._is_third(os.path.dirname(path))):
            return super()._open(path, mode, **more)
        if self.fault == "error":
            raise OSError(5, "Input/output error", path)
        super()._open(path, mode, **more)  # truncates it, as any open for writing does
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead by now")

    def _is_third(self, run):
        with open(f"{run}/{COUNT}", "a") as count:
            count.write("x")
        return os.path.getsize(f"{run}/{COUNT}") == 3


def storage(fault):
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(Faulty(fault)))
