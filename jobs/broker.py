"""Connections to Redis or Valkey, and its failures in one word."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import redis
import redis.asyncio
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 1.5
"""Longer than Redis ever takes; shorter than anybody should wait for a dead one."""


class BrokerUnavailable(Exception):
    """Redis does not answer. Nothing is lost by that: what it holds is rebuilt from the object store."""


def connect(url: str) -> redis.Redis:
    """A client for any number of threads; connects when first used.

    A command is tried twice, because connections that were open break when the broker is started anew.
    """
    return redis.Redis.from_url(
        url,
        socket_connect_timeout=CONNECT_SECONDS,
        socket_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 1, (redis.exceptions.ConnectionError,)),
    )


def connect_async(url: str) -> redis.asyncio.Redis:
    """The same for an event loop; without a time limit on answers, for subscriptions that wait."""
    return redis.asyncio.Redis.from_url(url, socket_connect_timeout=CONNECT_SECONDS, health_check_interval=5)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Failures of the broker as `BrokerUnavailable`."""
    try:
        yield
    except (redis.exceptions.RedisError, OperationalError, OSError) as error:
        raise BrokerUnavailable(str(error).partition("\n")[0] or type(error).__name__) from error
