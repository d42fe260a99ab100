"""A Checkpoint as Ray Train has it: a path, perhaps of a local file system, and metadata that no commit can lose."""

from __future__ import annotations

from pathlib import Path

import pyarrow.fs
import pytest

from shaketable.runtime.checkpoint import METADATA, Checkpoint, commit_at
from shaketable.runtime.errors import ConfigurationError, StorageError


def test_metadata_are_set_read_and_updated(tmp_path: Path) -> None:
    checkpoint = Checkpoint.from_directory(tmp_path)
    assert checkpoint.get_metadata() == {}
    checkpoint.set_metadata({"epoch": 1, "loss": 0.5})
    checkpoint.update_metadata({"epoch": 2})
    assert Checkpoint(tmp_path).get_metadata() == {"epoch": 2, "loss": 0.5}


def test_the_metadata_of_a_commit_can_be_read_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    folder = tmp_path / "checkpoints" / "000001-t1-a1"
    folder.mkdir(parents=True)
    (folder / METADATA).write_text('{"epoch": 1}')
    for commit in (commit_at(tmp_path, folder.name), Checkpoint(folder), Checkpoint(tmp_path, committed=True)):
        with pytest.raises(StorageError, match="no commit is ever changed"):
            commit.update_metadata({"epoch": 2})
    assert Checkpoint(folder).get_metadata() == {"epoch": 1}
    assert not (tmp_path / METADATA).exists()


def test_a_checkpoint_of_a_local_file_system_is_its_path(tmp_path: Path) -> None:
    local = pyarrow.fs.LocalFileSystem()
    assert Checkpoint(tmp_path, local) == Checkpoint(str(tmp_path))
    assert Checkpoint(tmp_path).filesystem == local
    assert repr(Checkpoint("/a/b")) == "Checkpoint(filesystem=local, path=/a/b)"
    assert repr(Checkpoint("s3://a/b")) == "Checkpoint(filesystem=s3, path=s3://a/b)"


def test_a_checkpoint_of_another_file_system_is_refused_with_the_url_to_use() -> None:
    with pytest.raises(ConfigurationError, match='"s3://bucket/x"'):
        Checkpoint("bucket/x", pyarrow.fs.S3FileSystem(anonymous=True, region="x"))
