"""What is tried again is counted, by who and of what kind, and told once."""

from __future__ import annotations

import contextlib
from pathlib import Path

from shaketable.runtime.agent.checkpoint_io import Place
from shaketable.runtime.agent.loop import AgentLoop, AgentSpec
from shaketable.runtime.config import RunConfig, ScalingConfig
from shaketable.runtime.controller.settings import Settings
from shaketable.runtime.driver.agents.peers import Peer
from shaketable.runtime.driver.executor import Executor, Job
from shaketable.runtime.driver.process_placement import ProcessNodes
from shaketable.runtime.errors import StorageUnavailable
from shaketable.runtime.log.records import AttemptEnded
from shaketable.runtime.log.run_log import open_run
from shaketable.runtime.storage import retries
from shaketable.runtime.transport import messages as msg
from shaketable.runtime.transport import wire
from shaketable.runtime.transport.wire import Channel
from shaketable.suites.tests.rigs.log_examples import CONFIGURATION, ended, started


def failing(times: int) -> None:
    left = iter(range(times))

    def call() -> None:
        if next(left, None) is not None:
            raise StorageUnavailable("503")

    retries.retrying("put", call, within_s=30.0)


def test_news_are_what_was_retried_since_they_were_told() -> None:
    news = retries.RetryDelta()
    # what other tests of this process have had to retry
    news.take()
    failing(2)
    assert news.take() == {"put": 2} and news.take() == {}
    failing(1)
    assert news.take() == {"put": 1}


def test_a_tally_is_by_who_and_begins_anew_with_each_attempt() -> None:
    tally = retries.RetryTotals()
    tally.add("rank 1", {"upload": 2})
    tally.add("driver", {"append": 1})
    tally.add("rank 1", {"upload": 1, "get": 4})
    tally.add("rank 0", {})
    assert tally.take() == {"driver": {"append": 1}, "rank 1": {"upload": 3, "get": 4}}
    assert tally.take() == {}


def test_an_agent_tells_its_driver_what_it_had_to_ask_again(tmp_path: Path) -> None:
    ours, theirs = wire.pair()
    loop = AgentLoop(Channel(theirs), AgentSpec("", 0, b"", 0, 0), Place("node", "127.0.0.1", tmp_path))
    with contextlib.closing(Channel(ours)) as driver:
        loop._turn()
        failing(2)
        loop._turn()
        told = [message for message in driver.receive() if isinstance(message, msg.Retried)]
    assert told[-1].counts == {"put": 2}


def test_the_record_of_an_attempts_end_has_what_driver_and_agents_had_to_ask_again(tmp_path: Path) -> None:
    log, _ = open_run(tmp_path / "run", CONFIGURATION)
    log.append(started(1))
    config = RunConfig(name="run", storage_path=str(tmp_path))
    settings = Settings(config, ScalingConfig(num_workers=2), 1)
    executor = Executor(Job(b"", (), {}, ()), config, settings, log, ProcessNodes(tmp_path))
    ours, _theirs = wire.pair()
    peer = Peer(Channel(ours), agent=1, unit=0, place=0, node_id="node", heard_s=0.0, rank=1)
    executor._on_message(peer, msg.Retried(counts={"upload": 2}))
    failing(1)
    executor._append(ended(1))
    write = executor._log_thread._calls.get()
    assert write is not None
    write()
    (_, record) = log.read()[-1]
    assert isinstance(record, AttemptEnded)
    assert record.retried["rank 1"] == {"upload": 2} and record.retried["driver"]["put"] >= 1
