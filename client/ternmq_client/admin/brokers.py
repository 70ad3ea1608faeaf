"""Administration of brokers and their stores."""

from collections.abc import Mapping
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList
from ternmq_model.route import BrokerData
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.service_methods import (
    CLEAN_STORE,
    DESCRIBE_BROKER,
    DESCRIBE_STATISTICS,
    DESCRIBE_STORE,
    LIST_SETTINGS,
    UPDATE_SETTINGS,
)

_CLEAN_TIMEOUT_S: Final = 600.0
"""Timeout of a deletion, s: the store rests 100 ms after each file, and may have thousands."""


class BrokerAdmin(AdminCalls):
    """Calls about brokers, their stores, statistics and live settings."""

    async def broker_status(self, data: BrokerData) -> admin.DescribeBrokerReply:
        """Return the status of a broker: of its master, or of a slave while the master is away."""
        async with self._reader(data) as connection:
            return await self._call(connection, DESCRIBE_BROKER, admin.DescribeBrokerRequest())

    async def clean_store(self, broker_name: str) -> admin.CleanStoreReply:
        """Delete a broker's expired messages now, at any hour.

        Returns:
            The number of log files that were deleted, and the log's first offset.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered.
        """
        async with self._master(await self.master_of(broker_name)) as connection:
            return await connection.call(
                CLEAN_STORE, admin.CleanStoreRequest(), timeout_s=_CLEAN_TIMEOUT_S
            )

    async def describe_store(self, data: BrokerData) -> admin.DescribeStoreReply:
        """Return the counters of a broker's store since it was opened."""
        async with self._reader(data) as connection:
            return await self._call(connection, DESCRIBE_STORE, admin.DescribeStoreRequest())

    async def statistics(
        self, *, name: str = "", key: str = "", broker_name: str = ""
    ) -> BrokerList[tuple[str, admin.StatisticsItem]]:
        """Return the counters of brokers, each with its broker's name.

        Args:
            name: Name of the counter, such as TOPIC_PUT_NUMS; empty = every counter.
            key: Key of the counter, such as `topic@group`; empty = every key.
            broker_name: Name of the broker; empty = every broker.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered.
            RefusedError: INVALID_PARAMETER: no counter has that name, or the reply is too large.
            Unreachable: No broker answers; names each.
        """
        replies = await self._ask_each(
            self._calling(DESCRIBE_STATISTICS, admin.DescribeStatisticsRequest(name=name, key=key)),
            brokers=(broker_name,) if broker_name else (),
        )
        items = ((name, item) for name, reply in replies.by_broker for item in reply.items)
        return BrokerList(items, replies.unreachable)

    async def settings(self, broker_name: str) -> list[admin.SettingValue]:
        """Return the settings of a broker that may change while it runs, sorted by name.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered.
        """
        (data,) = await self._readable(brokers=(broker_name,))
        async with self._reader(data) as connection:
            reply = await self._call(connection, LIST_SETTINGS, admin.ListSettingsRequest())
        return list(reply.settings)

    async def update_settings(self, broker_name: str, values: Mapping[str, str]) -> None:
        """Change settings of a broker until it stops: all of `values` or none.

        Raises:
            RefusedError: BROKER_NOT_EXIST: no such broker is registered.
            InvalidParameter: A setting is unknown or cannot change while the broker runs, or its
                value is illegal. Names the setting.
        """
        request = admin.UpdateSettingsRequest(values=values)
        async with self._master(await self.master_of(broker_name)) as connection:
            await self._call(connection, UPDATE_SETTINGS, request)
