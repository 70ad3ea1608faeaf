"""What is told to every NameServer."""

from ternmq_client.administration.calls import AdminCalls
from ternmq_model.address import Address
from ternmq_model.errors import RefusedError, TransportError, Unreachable
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import check_broker_name
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting.contracts import WIPE_WRITE_PERMISSION


class NameServerAdmin(AdminCalls):
    """Routes and settings that NameServers keep."""

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Let nobody send to a broker any more, while consumers read on.

        Every configured NameServer is told. Each keeps it in memory: it is over when the broker or
        that NameServer is restarted, or when the broker was silent for so long that it was dropped.
        Harmless to repeat.

        Returns:
            How many topics lost the permission; 0 when it was taken before.

        Raises:
            IllegalName: No broker is called so; nothing was asked.
            RefusedError: BROKER_NOT_EXIST: no NameServer knows the broker.
            Unreachable: A NameServer gave no answer; names each such. The others were told.
        """
        check_broker_name(broker_name)
        changed: list[int] = []
        unknown: list[RefusedError] = []
        failures: list[TransportError] = []
        silent: list[str] = []
        for address in self._names.addresses:
            try:
                changed.append(await self._wipe_at(address, broker_name))
            except RefusedError as error:
                if error.code != ResponseCode.BROKER_NOT_EXIST:
                    raise
                unknown.append(error)
            except TransportError as error:
                failures.append(error)
                silent.append(f"{address}: {error}")
        if failures:
            how_many = f"{len(silent)} of {len(self._names.addresses)} nameservers"
            unreachable = Unreachable(f"{how_many} not told: {'; '.join(silent)}")
            unreachable.may_have_happened = bool(changed) or any(
                failure.may_have_happened for failure in failures
            )
            raise unreachable
        if not changed:
            raise unknown[0]
        return max(changed)

    async def _wipe_at(self, nameserver_address: Address, broker_name: str) -> int:
        assert self._env is not None, "is open"
        connection = await self._env.network.connect(
            [nameserver_address], timeout_s=self._config.connect_timeout_s
        )
        try:
            request = nameserver.WipeWritePermissionRequest(broker_name=broker_name)
            reply = await connection.call(WIPE_WRITE_PERMISSION, request, timeout_s=self._timeout_s)
        finally:
            await connection.close()
        return reply.topics_changed
