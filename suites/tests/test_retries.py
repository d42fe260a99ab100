"""What is tried again is counted, by who and of what kind, and told once."""

from __future__ import annotations

from shaketable.runtime import retries
from shaketable.runtime.errors import StorageUnavailable


def failing(times: int) -> None:
    left = iter(range(times))

    def call() -> None:
        if next(left, None) is not None:
            raise StorageUnavailable("503")

    retries.patiently("put", call, within_s=30.0)


def test_news_are_what_was_retried_since_they_were_told() -> None:
    news = retries.News()
    news.take()  # what other tests of this process have had to retry
    failing(2)
    assert news.take() == {"put": 2} and news.take() == {}
    failing(1)
    assert news.take() == {"put": 1}


def test_a_tally_is_by_who_and_begins_anew_with_each_attempt() -> None:
    tally = retries.Tally()
    tally.add("rank 1", {"upload": 2})
    tally.add("driver", {"append": 1})
    tally.add("rank 1", {"upload": 1, "get": 4})
    tally.add("rank 0", {})
    assert tally.take() == {"driver": {"append": 1}, "rank 1": {"upload": 3, "get": 4}}
    assert tally.take() == {}
