from __future__ import annotations

from shaketable.runtime.controller import events as ev
from shaketable.runtime.driver.pipeline import Pipeline
from shaketable.runtime.log import records as rec

RECORD = rec.RunFailed(term=1, error="no more")


class Shell:
    """Writes down what it is asked for, in order."""

    def __init__(self) -> None:
        self.did: list[object] = []
        self.pipeline = Pipeline(self.did.append, self.did.append)

    def ask(self, *commands: ev.Command) -> None:
        self.pipeline.extend(commands)
        self.pipeline.run()


def test_what_follows_a_record_waits_until_it_is_durable() -> None:
    shell = Shell()
    shell.ask(ev.Warn("before"), ev.AppendRecord(RECORD), ev.Warn("after"))
    assert shell.did == [ev.Warn("before"), RECORD]
    shell.pipeline.appended()
    assert shell.did == [ev.Warn("before"), RECORD, ev.Warn("after")]


def test_what_is_asked_meanwhile_queues_up_behind() -> None:
    shell = Shell()
    shell.ask(ev.AppendRecord(RECORD), ev.Warn("first"))
    shell.ask(ev.Warn("second"))
    shell.pipeline.appended()
    assert shell.did == [RECORD, ev.Warn("first"), ev.Warn("second")]


def test_nothing_that_was_decided_on_the_strength_of_the_log_happens_once_it_has_failed() -> None:
    shell = Shell()
    shell.ask(ev.AppendRecord(RECORD), ev.Warn("never"))
    shell.pipeline.log_failed()
    shell.ask(ev.Warn("now"))
    assert shell.did == [RECORD, ev.Warn("now")]


def test_nothing_happens_after_the_end() -> None:
    shell = Shell()
    shell.ask(ev.FinishRun("finished"), ev.Warn("never"))
    assert shell.did == [ev.FinishRun("finished")]
