"""Epochs at a NameServer: which it takes and keeps."""

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
from ternmq_remoting import service_methods
from tests.support.called_nameserver import Caller, nameserver, registration, run


async def epoch_of(call: Caller, name: str = "a") -> tuple[bool, int]:
    request = pb.GetEpochRequest(cluster="c", broker_name=name)
    reply = await call(service_methods.GET_EPOCH, request)
    return reply.is_known, reply.highest_epoch


@pytest.mark.parametrize("is_durable", [False, True])
def test_lower_epoch_is_refused_even_without_living_members(
    is_durable: bool, tmp_path: Path
) -> None:
    data = tmp_path if is_durable else None

    async def main() -> None:
        async with nameserver(data) as call:
            assert await epoch_of(call) == (False, 0)
            reply = await call(service_methods.REGISTER_BROKER, registration("t", epoch=1000))
            assert reply.highest_epoch == 1000
            assert await epoch_of(call) == (True, 1000)
            goodbye = pb.UnregisterBrokerRequest(
                cluster="c", broker_name="a", broker_id=0, incarnation="life-0"
            )
            await call(service_methods.UNREGISTER_BROKER, goodbye)
            await expect_refusal(call)
        async with nameserver(data) as call:
            assert await epoch_of(call) == ((True, 1000) if is_durable else (False, 0))
            assert await epoch_of(call, "b") == (False, 0)
            if is_durable:
                await expect_refusal(call)
            else:
                await call(service_methods.REGISTER_BROKER, registration("t", epoch=3))

    async def expect_refusal(call: Caller) -> None:
        with pytest.raises(RefusedError, match="epoch 3 is over, 1000 has begun"):
            await call(service_methods.REGISTER_BROKER, registration("t", epoch=3))
        clusters = await call(service_methods.GET_CLUSTER, pb.GetClusterRequest())
        assert not clusters.brokers

    run(main)


def test_refusal_names_the_highest_epoch() -> None:
    async def main() -> None:
        told = {0, int(ResponseCode.ILLEGAL_OPERATION)}
        rpc = dataclasses.replace(service_methods.REGISTER_BROKER, answers=frozenset(told))
        async with nameserver() as call:
            await call(service_methods.REGISTER_BROKER, registration("t", epoch=7))
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
            await call(service_methods.REGISTER_BROKER, registration("t", epoch=7))
            with pytest.raises(InvalidParameter, match="more than 1000000000 above 7"):
                await call(
                    service_methods.REGISTER_BROKER,
                    registration("t", broker_id=broker_id, epoch=1 << 61),
                )
            assert "registration refused" in caplog.text
            assert await epoch_of(call) == (True, 7)
            await call(service_methods.REGISTER_BROKER, registration("t", epoch=8))

    run(main)


def test_epoch_kept_by_older_version_refuses_masters_and_names_the_repair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / EPOCHS_FILE).write_bytes(EpochTable({("c", "a"): 1 << 62}).to_json())

    async def main() -> None:
        async with nameserver(tmp_path) as call:
            with pytest.raises(RefusedError, match="repair-epoch"):
                await call(service_methods.REGISTER_BROKER, registration("t", epoch=7))
        assert f"ternmq broker repair-epoch a --data {tmp_path}" in caplog.text

    run(main)


def test_refused_registration_raises_no_epoch() -> None:
    async def main() -> None:
        async with nameserver() as call:
            request = registration("t", epoch=5)
            del request.endpoints[:]
            with pytest.raises(InvalidParameter):
                await call(service_methods.REGISTER_BROKER, request)
            assert await epoch_of(call) == (False, 0)
            with pytest.raises(RefusedError):
                await call(service_methods.GET_EPOCH, pb.GetEpochRequest(cluster="c"))

    run(main)
