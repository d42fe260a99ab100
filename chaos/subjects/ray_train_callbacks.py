"""The observer that Ray Train itself loads into its controller (`RAY_TRAIN_CALLBACKS`), and that testifies what the
controller does (`ray_train_watching.py`).

It lives in three places: made in the driver, pickled into the controller, where it observes, and from there pickled
into each worker, which it only tells its attempt.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ray.train.v2._internal.execution.callback import WorkerCallback

from shaketable.chaos.history import Event, RunEnded
from shaketable.chaos.subjects.jobs import one_line
from shaketable.chaos.subjects.ray_train import TERM_ENV
from shaketable.chaos.subjects.ray_train_past import read_past
from shaketable.chaos.subjects.ray_train_script import Script, listen, look, refuse_other_clusters
from shaketable.chaos.subjects.ray_train_watching import Watching, guarded
from shaketable.chaos.subjects.ray_train_worker import place
from shaketable.chaos.witness import Witness, WitnessConfig


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
        return {**self.__dict__, "_witness": None, "_manager": None}  # each process is a witness of its own

    def _testify(self, event: Event) -> None:
        if self._witness is None:
            self._witness = Witness(self._config, "controller")
        self._witness.testify(event)

    # ---- the driver, where it is a script of the user's ----

    def _look(self, script: Script) -> None:
        """Not guarded: a run that is not on record, or elsewhere, must not go on unseen."""
        seen = look(script, self._term)
        witness = Witness(self._config, "driver")
        witness.testify(seen)
        witness.close()
        refuse_other_clusters(script, seen)

    def _run_ended(self, outcome: str, error: BaseException | None, metrics: dict[str, Any] | None) -> None:
        """A script's `fit()` raises what is in the result or returns it. (A driver of ours testifies that itself.)"""
        if self._script is not None:
            said = one_line(error) if error is not None else "aborted" if outcome == "interrupted" else None
            self._testify(RunEnded(term=self._term, outcome=outcome, error=said, metrics=metrics))

    # ---- the workers ----

    @guarded
    def after_init_train_context(self) -> None:
        place(self._placement)
        if self._script is not None:
            listen(self._script, self._config)
