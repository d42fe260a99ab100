"""The observer that Ray Train itself loads into its controller (`RAY_TRAIN_CALLBACKS`), and that records what the
controller does (`watching.py`).

It lives in three places: made in the driver, pickled into the controller, where it observes, and from there pickled
into each worker, which it only tells its attempt.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ray.train.v2._internal.execution.callback import WorkerCallback

from shaketable.chaos.history.events import Event, RunEnded
from shaketable.chaos.history.witness import Witness, WitnessConfig
from shaketable.chaos.subjects.jobs import one_line
from shaketable.chaos.subjects.ray_train.past import read_past
from shaketable.chaos.subjects.ray_train.script import Script, listen, look, refuse_other_clusters
from shaketable.chaos.subjects.ray_train.subject import TERM_ENV
from shaketable.chaos.subjects.ray_train.watching import Watching, guarded
from shaketable.chaos.subjects.ray_train.worker import place


class Observer(Watching, WorkerCallback):
    def __init__(self) -> None:
        self._config = WitnessConfig.load(os.environ[WitnessConfig.ENV])
        self._witness: Witness | None = None
        self._begin(int(os.environ[TERM_ENV]), read_past(Path(self._config.directory)))
        self._script = Script.of_environment()
        if self._script is not None:
            self._look(self._script)

    @guarded
    def after_controller_start(self, train_run_context: Any) -> None:
        """The past was read in the driver: one that is still running has gone on since then."""
        again = read_past(Path(self._config.directory))
        if again.attempts:
            self._begin(self._term, again)
        super().after_controller_start(train_run_context)

    def __getstate__(self) -> dict[str, Any]:
        # each process is a witness of its own
        return {**self.__dict__, "_witness": None, "_manager": None}

    def _emit(self, event: Event) -> None:
        if self._witness is None:
            self._witness = Witness(self._config, "controller")
        self._witness.emit(event)

    # ---- the driver, where it is a script of the user's ----

    def _look(self, script: Script) -> None:
        """Not guarded: a run that is not on record, or elsewhere, must not go on unseen."""
        seen = look(script, self._term)
        witness = Witness(self._config, "driver")
        witness.emit(seen)
        witness.close()
        refuse_other_clusters(script, seen)

    def _run_ended(self, outcome: str, error: BaseException | None, metrics: dict[str, Any] | None) -> None:
        """A script's `fit()` raises what is in the result or returns it. (A driver of ours records that itself.)"""
        if self._script is not None:
            said = one_line(error) if error is not None else "aborted" if outcome == "interrupted" else None
            self._emit(RunEnded(term=self._term, outcome=outcome, error=said, metrics=metrics))

    # ---- the workers ----

    @guarded
    def after_init_train_context(self) -> None:
        place(self._placement)
        if self._script is not None:
            listen(self._script, self._config)
