"""Administration of brokers."""

from typing import Final

from ternmq_client.administration.calls import AdminCalls
from ternmq_model.route import BrokerData
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_remoting.contracts import CLEAN_STORE, DESCRIBE_BROKER, DESCRIBE_STORE

_CLEAN_TIMEOUT_S: Final = 600.0
"""Deleting a thousand files takes that long at 100 ms rest after each, and more."""


class BrokerAdmin(AdminCalls):
    """Brokers and their stores."""

    async def broker_status(self, data: BrokerData) -> admin.DescribeBrokerReply:
        """Return what the master of `data` says of itself and its store."""
        async with self._master(data) as connection:
            return await connection.call(
                DESCRIBE_BROKER, admin.DescribeBrokerRequest(), timeout_s=self._timeout_s
            )

    async def clean_store(self, broker_name: str) -> admin.CleanStoreReply:
        """Have a broker delete what has expired of its messages now, whatever the hour.

        Returns:
            How many files of its log went, and where the log begins.

        Raises:
            UsageError: There is no such broker.
        """
        (data,) = await self._wanted(brokers=(broker_name,))
        async with self._master(data) as connection:
            return await connection.call(
                CLEAN_STORE, admin.CleanStoreRequest(), timeout_s=_CLEAN_TIMEOUT_S
            )

    async def describe_store(self, data: BrokerData) -> admin.DescribeStoreReply:
        """Return what the store of the master of `data` has counted since it was opened."""
        async with self._master(data) as connection:
            return await connection.call(
                DESCRIBE_STORE, admin.DescribeStoreRequest(), timeout_s=self._timeout_s
            )
