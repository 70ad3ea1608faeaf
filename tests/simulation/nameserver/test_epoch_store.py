"""Epochs at a NameServer: which it takes, keeps and repairs."""

import dataclasses
from pathlib import Path

import pytest

from ternmq_model.errors import (
    InvalidParameter,
    RefusedError,
)
from ternmq_model.response_code import ResponseCode
from ternmq_nameserver.epoch_store import FILE_NAME as EPOCHS_FILE
from ternmq_nameserver.epoch_table import EpochTable
from ternmq_protos.v1 import nameserver_pb2 as pb
from ternmq_remoting import contracts
from tests.support.called_nameserver import Caller, nameserver, registration, run


async def epoch_of(call: Caller, name: str = "a") -> tuple[bool, int]:
    request = pb.GetEpochRequest(cluster="c", broker_name=name)
    reply = await call(contracts.GET_EPOCH, request)
    return reply.is_known, reply.highest_epoch


@pytest.mark.parametrize("is_durable", [False, True])
def test_lower_epoch_is_refused_even_without_living_members(
    is_durable: bool, tmp_path: Path
) -> None:
    data = tmp_path if is_durable else None

    async def main() -> None:
        async with nameserver(data) as call:
            assert await epoch_of(call) == (False, 0)
            reply = await call(contracts.REGISTER_BROKER, registration("t", epoch=1000))
            assert reply.highest_epoch == 1000
            assert await epoch_of(call) == (True, 1000)
            goodbye = pb.UnregisterBrokerRequest(
                cluster="c", broker_name="a", broker_id=0, incarnation="life-0"
            )
            await call(contracts.UNREGISTER_BROKER, goodbye)
            await expect_refusal(call)
        async with nameserver(data) as call:
            assert await epoch_of(call) == ((True, 1000) if is_durable else (False, 0))
            assert await epoch_of(call, "b") == (False, 0)
            if is_durable:
                await expect_refusal(call)
            else:
                await call(contracts.REGISTER_BROKER, registration("t", epoch=3))

    async def expect_refusal(call: Caller) -> None:
        with pytest.raises(RefusedError, match="epoch 3 is over, 1000 has begun"):
            await call(contracts.REGISTER_BROKER, registration("t", epoch=3))
        clusters = await call(contracts.GET_CLUSTER, pb.GetClusterRequest())
        assert not clusters.brokers

    run(main)


def test_refusal_names_the_highest_epoch() -> None:
    async def main() -> None:
        told = {0, int(ResponseCode.ILLEGAL_OPERATION)}
        rpc = dataclasses.replace(contracts.REGISTER_BROKER, answers=frozenset(told))
        async with nameserver() as call:
            await call(contracts.REGISTER_BROKER, registration("t", epoch=7))
            reply = await call(rpc, registration("t", epoch=6))
            assert reply.status.code == ResponseCode.ILLEGAL_OPERATION
            assert reply.highest_epoch == 7

    run(main)


@pytest.mark.parametrize("broker_id", [0, 1])
def test_made_up_epoch_is_refused_logged_and_not_kept(
    broker_id: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with nameserver() as call:
            await call(contracts.REGISTER_BROKER, registration("t", epoch=7))
            with pytest.raises(InvalidParameter, match="more than 1000000000 above 7"):
                await call(
                    contracts.REGISTER_BROKER,
                    registration("t", broker_id=broker_id, epoch=1 << 61),
                )
            assert "registration refused" in caplog.text
            assert await epoch_of(call) == (True, 7)
            await call(contracts.REGISTER_BROKER, registration("t", epoch=8))

    run(main)


def test_epoch_kept_by_older_version_is_repaired(tmp_path: Path) -> None:
    made_up = 1 << 62
    (tmp_path / EPOCHS_FILE).write_bytes(EpochTable({("c", "a"): made_up}).to_json())

    async def main() -> None:
        async with nameserver(tmp_path) as call:
            with pytest.raises(RefusedError, match="repair-epoch"):
                await call(contracts.REGISTER_BROKER, registration("t", epoch=7))
            with pytest.raises(RefusedError, match=f"its epoch is {made_up} by now, not 9"):
                await repair(call, expected=9)
            await repair(call, expected=made_up)
            await repair(call, expected=made_up)  # an answer that was lost
            await call(contracts.REGISTER_BROKER, registration("t", epoch=7))
        async with nameserver(tmp_path) as call:
            assert await epoch_of(call) == (True, 7)

    async def repair(call: Caller, *, expected: int) -> None:
        request = pb.RepairEpochRequest(
            cluster="c", broker_name="a", expected_epoch=expected, epoch=7
        )
        await call(contracts.REPAIR_EPOCH, request)

    run(main)


def test_name_is_forgotten_once_no_member_is_registered(tmp_path: Path) -> None:
    async def forget(call: Caller, *, expected: int) -> None:
        request = pb.RepairEpochRequest(cluster="c", broker_name="a", expected_epoch=expected)
        await call(contracts.REPAIR_EPOCH, request)

    async def main() -> None:
        async with nameserver(tmp_path) as call:
            await call(contracts.REGISTER_BROKER, registration("t", epoch=1000))
            with pytest.raises(RefusedError, match="member 0 is registered"):
                await forget(call, expected=1000)
            goodbye = pb.UnregisterBrokerRequest(
                cluster="c", broker_name="a", broker_id=0, incarnation="life-0"
            )
            await call(contracts.UNREGISTER_BROKER, goodbye)
            with pytest.raises(RefusedError, match="its epoch is 1000 by now, not 1"):
                await forget(call, expected=1)
            for _ in range(2):  # an answer that was lost
                await forget(call, expected=1000)
        async with nameserver(tmp_path) as call:
            assert await epoch_of(call) == (False, 0)
            await call(contracts.REGISTER_BROKER, registration("t", epoch=3))

    run(main)


def test_refused_registration_raises_no_epoch() -> None:
    async def main() -> None:
        async with nameserver() as call:
            request = registration("t", epoch=5)
            del request.endpoints[:]
            with pytest.raises(InvalidParameter):
                await call(contracts.REGISTER_BROKER, request)
            assert await epoch_of(call) == (False, 0)
            with pytest.raises(RefusedError):
                await call(contracts.GET_EPOCH, pb.GetEpochRequest(cluster="c"))

    run(main)
