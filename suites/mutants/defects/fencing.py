"""Two drivers, lost answers, and who owns the log."""

from __future__ import annotations

import importlib
from typing import Any

import msgspec

from shaketable.suites.mutants.defining import RUNTIME, defect, replace, replace_item

WRITER = "single-writer"


@defect("log.run_log", WRITER, experiment="two-drivers")
def fence_ignored(runlog: Any) -> None:
    """a superseded driver writes its record behind those of the newer driver"""

    def make(original: Any) -> Any:
        def append(self: Any, record: Any) -> Any:
            try:
                return original(self, record)
            except (runlog.Fenced, runlog.NumberTaken):
                stored = self._stamped(record)
                number = self._records.highest() + 1
                while not self._records.create(number, runlog._encode(stored)):
                    number += 1
                return number, stored

        return append

    replace(runlog.RunLog, "append", make)
    replace(runlog.RunLog, "check_fence", lambda original: lambda self: None)


@defect("controller.handlers.leasing", WRITER, "liveness", "runtime")
def fence_not_obeyed(leasing: Any) -> None:
    """a fenced driver keeps running, and keeps everything that it holds"""

    def make(original: Any) -> Any:
        def finish(m: Any, outcome: str, *rest: Any, **known: Any) -> None:
            if outcome != "fenced":
                original(m, outcome, *rest, **known)

        return finish

    replace(leasing, "finish", make)


@defect("storage.local", WRITER, "truthful-ending", "durability", experiment="two-drivers", tried="processes")
def log_written_in_place(local_store: Any) -> None:
    """a record is written in place, over an existing one"""

    def in_place(path: Any, data: bytes) -> bool:
        path.write_bytes(data)
        return True

    replace(local_store, "create_once", lambda original: in_place)


@defect("log.run_log", WRITER)
def fence_checked_at_appends_only(runlog: Any) -> None:
    """a driver that writes nothing never notices that another one has taken over"""
    replace(runlog.RunLog, "check_fence", lambda original: lambda self: None)


@defect("log.run_log", WRITER, "truthful-ending")
def lost_answer_written_again(runlog: Any) -> None:
    """a record whose answer was lost is written again as a new one"""

    def make(original: Any) -> Any:
        def append(self: Any, record: Any) -> Any:
            try:
                return original(self, record)
            except runlog.StorageUnsettled:
                self._open_question = None
                taken = self._records.get(self.state.next_number) is not None
                number = self.state.next_number + taken
                self.state = msgspec.structs.replace(self.state, next_number=number)
                raise

        return append

    replace(runlog.RunLog, "append", make)


@defect("log.run_log", "truthful-ending", "liveness")
def lost_answer_taken_for_a_rival(runlog: Any) -> None:
    """a driver whose answer was lost takes its own record for another driver's, and stops"""

    def make(original: Any) -> Any:
        def stamped(self: Any, record: Any) -> Any:
            self._open_question = None
            return original(self, record)

        return stamped

    replace(runlog.RunLog, "_stamped", make)


@defect("log.run_log", WRITER, experiment="driver-sigkill")
def term_not_raised(runlog: Any) -> None:
    """a driver opens a run with the term of the previous driver"""
    fold: Any = importlib.import_module(f"{RUNTIME}.log.run_state")

    def make_rule(original: Any) -> Any:
        def opened(state: Any, record: Any) -> Any:
            if record.term != state.term:
                return original(state, record)
            after = original(state, msgspec.structs.replace(record, term=record.term + 1))
            return msgspec.structs.replace(after, term=record.term)

        return opened

    def make_opening(original: Any) -> Any:
        def opening(*arguments: Any) -> Any:
            record = original(*arguments)
            return record and msgspec.structs.replace(record, term=max(1, record.term - 1))

        return opening

    replace_item(fold._RULES, fold.Opened, make_rule)
    replace(runlog, "_opening", make_opening)


@defect("log.run_state", WRITER, experiment="driver-sigkill")
def open_attempt_forgotten(fold: Any) -> None:
    """a new driver does not end the attempt that the previous one left open"""

    def make(original: Any) -> Any:
        return lambda state, record: fold.replace(original(state, record), open_attempt=None)

    replace_item(fold._RULES, fold.Opened, make)


@defect("log.run_log", WRITER)
def finished_run_reopened(runlog: Any) -> None:
    """a finished run is run again"""
    fold: Any = importlib.import_module(f"{RUNTIME}.log.run_state")

    def unfinished(state: Any) -> Any:
        return msgspec.structs.replace(state, outcome="failed") if state.outcome == "finished" else state

    def make_opening(original: Any) -> Any:
        return lambda path, state, *rest: original(path, unfinished(state), *rest)

    def make_rule(original: Any) -> Any:
        return lambda state, record: original(unfinished(state), record)

    def make_check(original: Any) -> Any:
        def check(state: Any, record: Any) -> None:
            if not isinstance(record, fold.Opened):
                original(state, record)

        return check

    replace(runlog, "_opening", make_opening)
    replace_item(fold._RULES, fold.Opened, make_rule)
    replace(fold, "_check_common", make_check)


@defect("agent.actor", "liveness", WRITER, experiment="driver-frozen", tried="local", within_s=90)
def lease_not_given_back(agent: Any) -> None:
    """an agent without a driver ends, but its placement group stays"""
    replace(agent, "_give_back", lambda original: lambda lease: None)
