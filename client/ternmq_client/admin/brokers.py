"""Administration of brokers."""

from collections.abc import Mapping, Sequence
from typing import Final

from ternmq_client.admin.admin_calls import AdminCalls
from ternmq_client.admin.descriptions import BrokerList
from ternmq_model.route import BrokerData
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.rpc import Connection
from ternmq_remoting.service_methods import (
    CLEAN_STORE,
    DESCRIBE_BROKER,
    DESCRIBE_STATISTICS,
    DESCRIBE_STORE,
    LIST_SETTINGS,
    UPDATE_SETTINGS,
)

_CLEAN_TIMEOUT_S: Final = 600.0
"""Deleting a thousand files takes that long at 100 ms rest after each, and more."""


class BrokerAdmin(AdminCalls):
    """Brokers and their stores."""

    async def broker_status(self, data: BrokerData) -> admin.DescribeBrokerReply:
        """Return what the master of `data` says of itself and its store."""
        async with self._reader(data) as connection:
            return await connection.call(
                DESCRIBE_BROKER, admin.DescribeBrokerRequest(), timeout_s=self._timeout_s
            )

    async def clean_store(self, broker_name: str) -> admin.CleanStoreReply:
        """Have a broker delete what has expired of its messages now, whatever the hour.

        Returns:
            How many files of its log went, and where the log begins.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker.
        """
        (data,) = await self._wanted(brokers=(broker_name,))
        async with self._master(data) as connection:
            return await connection.call(
                CLEAN_STORE, admin.CleanStoreRequest(), timeout_s=_CLEAN_TIMEOUT_S
            )

    async def describe_store(self, data: BrokerData) -> admin.DescribeStoreReply:
        """Return what the store of the master of `data` has counted since it was opened."""
        async with self._reader(data) as connection:
            return await connection.call(
                DESCRIBE_STORE, admin.DescribeStoreRequest(), timeout_s=self._timeout_s
            )

    async def statistics(
        self, *, name: str = "", key: str = "", broker_name: str = ""
    ) -> BrokerList[tuple[str, admin.StatisticsItem]]:
        """Return what the brokers have counted, each with its broker's name.

        Args:
            name: One counter alone, such as TOPIC_PUT_NUMS; empty = all.
            key: One key alone, such as `topic@group`; empty = all.
            broker_name: Of this broker alone; empty = of all.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker.
            RefusedError: INVALID_PARAMETER: nothing is counted by that name, or more than fits.
            Unreachable: No broker answers; names each.
        """
        request = admin.DescribeStatisticsRequest(name=name, key=key)

        async def counted(_: BrokerData, connection: Connection) -> Sequence[admin.StatisticsItem]:
            reply = await connection.call(DESCRIBE_STATISTICS, request, timeout_s=self._timeout_s)
            return reply.items

        asked = await self._ask_each(counted, brokers=(broker_name,) if broker_name else ())
        items = ((name, item) for name, items in asked.told for item in items)
        return BrokerList(items, asked.unreachable)

    async def settings(self, broker_name: str) -> list[admin.SettingValue]:
        """Return the settings of a broker that may change while it runs, sorted by name.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker.
        """
        (data,) = await self._readable(brokers=(broker_name,))
        async with self._reader(data) as connection:
            reply = await connection.call(
                LIST_SETTINGS, admin.ListSettingsRequest(), timeout_s=self._timeout_s
            )
        return list(reply.settings)

    async def update_settings(self, broker_name: str, values: Mapping[str, str]) -> None:
        """Change settings of a broker, all of them or none. They hold until it stops.

        Raises:
            RefusedError: BROKER_NOT_EXIST: there is no such broker.
            InvalidParameter: One is unknown or may not be changed while the broker runs, or a value
                cannot be. Names the setting.
        """
        (data,) = await self._wanted(brokers=(broker_name,))
        async with self._master(data) as connection:
            await connection.call(
                UPDATE_SETTINGS,
                admin.UpdateSettingsRequest(values=values),
                timeout_s=self._timeout_s,
            )
