"""The subjects: what runs the job and is under test. Nothing of either is imported before it is asked for."""

from __future__ import annotations

from shaketable.chaos.subjects.protocol import Launch, Subject

__all__ = ["SUBJECTS", "Launch", "Subject", "subject"]

SUBJECTS = ("bundled", "ray-train")


def subject(name: str) -> Subject:
    """The subject of that name, for the harness."""
    if name == "bundled":
        from shaketable.chaos.subjects.bundled.subject import Bundled

        return Bundled()
    if name == "ray-train":
        from shaketable.chaos.subjects.ray_train.subject import RayTrain

        return RayTrain()
    raise ValueError(f"no subject {name!r}: use one of {', '.join(SUBJECTS)}")
