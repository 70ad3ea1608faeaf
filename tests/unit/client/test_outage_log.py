"""One warning for a broker that is lost."""

import asyncio
import logging

import pytest

from ternmq_client.outage_log import OutageLog
from ternmq_model.address import Address
from ternmq_testing.time.virtual_time import VirtualClock, run_in_virtual_time


def test_lost_broker_is_warned_of_once_for_all_clients_of_a_cluster(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        here, elsewhere = (Address("here", 1),), (Address("elsewhere", 1),)
        one, two = OutageLog(VirtualClock(), here), OutageLog(VirtualClock(), here)
        other = OutageLog(VirtualClock(), elsewhere)
        caplog.set_level(logging.INFO, "ternmq_client.outage_log")
        for outages in (one, two, one, other):
            outages.note("broker-a", "it restarts")
        one.note("broker-b", "it restarts")
        levels = [record.levelname for record in caplog.records]
        assert levels == ["WARNING", "INFO", "INFO", "WARNING", "WARNING"]
        for _ in range(20):
            await asyncio.sleep(8)  # as far apart as attempts are
            two.note("broker-a", "it stays away")
        assert {record.levelname for record in caplog.records[5:]} == {"INFO"}
        await asyncio.sleep(30)
        one.note("broker-a", "it restarts")
        assert caplog.records[-1].levelname == "WARNING"
        for outages in (one, two, other):
            outages.close()

    run_in_virtual_time(main())
