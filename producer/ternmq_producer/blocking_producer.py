"""Blocking producers, for synchronous callers."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from ternmq_client.blocking_client import BlockingClient, blocking, on_loop
from ternmq_client.config import ClientConfig
from ternmq_client.interceptors import SendInterceptor
from ternmq_model.errors import ClosedError
from ternmq_model.message import Message, SendResult
from ternmq_model.queue import MessageQueue
from ternmq_producer.config import ProducerConfig
from ternmq_producer.producer import Producer
from ternmq_producer.queue_selection.selectors import QueueSelector
from ternmq_producer.transactions.transaction_checks import Check
from ternmq_producer.transactions.transaction_producer import Execute, TransactionProducer
from ternmq_remoting.environment import Environment, EnvironmentSource

if TYPE_CHECKING:
    from asyncio import Future as AsyncFuture


class BlockingProducer(BlockingClient[Producer]):
    """Producer whose verbs block: `with BlockingProducer("group") as producer:`.

    Any number of threads may use the producer, whose event loop has its own thread. Arguments,
    results and errors are those of `Producer`. An interrupt (Ctrl-C) ends the waiting; the message
    may be sent all the same.
    """

    def __init__(
        self,
        group: str,
        *,
        nameserver: str | Sequence[str] | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        interceptors: Sequence[SendInterceptor] = (),
        env: Environment | EnvironmentSource | None = None,
    ) -> None:
        super().__init__(
            Producer(
                group,
                nameserver=nameserver,
                config=config,
                client=client,
                interceptors=interceptors,
                env=env,
            )
        )

    send = blocking(Producer.send)
    send_many = blocking(Producer.send_many)
    send_columns = blocking(Producer.send_columns)
    send_batch = blocking(Producer.send_batch)
    send_one_way = blocking(Producer.send_one_way)
    request = blocking(Producer.request)
    statistics = on_loop(Producer.statistics)
    flush = blocking(Producer.flush)

    def enqueue(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        timeout_s: float | None = None,
    ) -> "Future[SendResult]":
        """Queue `message` for sending, and return the future of its answer. See `Producer.enqueue`.

        The call waits only for the topic's route and for buffer space.
        """
        answer: Future[SendResult] = Future()
        answer.set_running_or_notify_cancel()

        async def enqueue() -> None:
            future = await self._client.enqueue(
                message, queue=queue, selector=selector, timeout_s=timeout_s
            )
            future.add_done_callback(lambda done: _pass_on(done, answer))

        self._run(enqueue())
        return answer

    @property
    def is_connected(self) -> bool:
        """True while a broker can be reached. See `Producer.is_connected`."""
        return self._client.is_connected


class BlockingTransactionProducer(BlockingClient[TransactionProducer]):
    """Transaction producer whose `send` blocks: `with BlockingTransactionProducer(...)`.

    Any number of threads may use the producer. Plain functions `execute` and `check` run in threads
    of a pool.
    """

    def __init__(
        self,
        group: str,
        *,
        execute: Execute,
        check: Check,
        topics: Sequence[str] = (),
        nameserver: str | Sequence[str] | None = None,
        config: ProducerConfig | None = None,
        client: ClientConfig | None = None,
        interceptors: Sequence[SendInterceptor] = (),
        env: Environment | EnvironmentSource | None = None,
    ) -> None:
        super().__init__(
            TransactionProducer(
                group,
                execute=execute,
                check=check,
                topics=topics,
                nameserver=nameserver,
                config=config,
                client=client,
                interceptors=interceptors,
                env=env,
            )
        )

    send = blocking(TransactionProducer.send)


def _pass_on(done: "AsyncFuture[SendResult]", answer: "Future[SendResult]") -> None:
    if done.cancelled():
        answer.set_exception(ClosedError("the producer was closed before the answer came"))
    elif (error := done.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(done.result())
