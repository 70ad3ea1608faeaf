"""Brokers for tests of consumers: right as far as they go, in memory, with faults on demand.

One host "nameserver" tells the route of one topic; hosts "broker-0", "broker-1"… serve its queues.
Nothing is checked that consumers do not rely on. What they rely on is recorded: every offset that
was committed, every member that came or went.
"""

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

from ternmq_model.address import Address
from ternmq_model.errors import ClosedError, ConnectionLost, TopicNotFound
from ternmq_model.properties import tag_code
from ternmq_model.queue import MessageQueue
from ternmq_model.record import encode_record
from ternmq_model.response_code import ResponseCode
from ternmq_model.route import BrokerData, BrokerMember, Permission, QueueData, TopicRoute
from ternmq_model.subscription import parse_subscription
from ternmq_protos.v1 import admin_pb2 as admin
from ternmq_protos.v1 import common_pb2 as common
from ternmq_protos.v1 import groups_pb2 as groups
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_protos.v1 import nameserver_pb2 as nameserver
from ternmq_remoting import contracts
from ternmq_remoting.convert import route_to_pb
from ternmq_remoting.environment import Environment
from ternmq_remoting.rpc import Call, Handler, Identity, Server, ServerStream, stream, unary
from tests.support.memory_network import MemoryNetwork
from tests.support.records import BORN_HOST, STORE_HOST
from tests.support.toy_groups import ToyGroups
from tests.support.toy_records import RETRY_QUEUE as RETRY_QUEUE
from tests.support.toy_records import TOPIC as TOPIC
from tests.support.toy_records import ToyHandle, ToyRecord, queue_key
from tests.support.virtual_time import InlineBlocking, VirtualClock

SESSION_GRACE_S = 10.0

SessionStream = ServerStream[groups.SessionRequest, groups.SessionReply]
PullServerStream = ServerStream[messages.PullStreamRequest, messages.PullStreamReply]


class ToyBroker:
    """One broker.

    Attributes:
        queues: Records by queue id; the place is the offset.
        min_offsets: Below it records have expired.
        offsets: Committed, by group and queue id.
        versions: Of the offsets, alike.
        commits: Everything that was committed and taken: group, queue id, offset.
        refusal: A code by which new subscriptions of pull streams end, while it is not 0.
        forgets: Forget every subscription at the next look, without a word.
        reply_messages_max: Most messages of one queue in one reply.
        sent: Messages sent on pull streams.
        groups: Locks and send-backs.
        retries: The one queue of `retry_topic`; as a queue id it is `RETRY_QUEUE`.
        retry_topic: Empty while nothing was sent back.
    """

    def __init__(self, name: str, queue_count: int) -> None:
        self.name = name
        self.queues: list[list[ToyRecord]] = [[] for _ in range(queue_count)]
        self.min_offsets = [0] * queue_count
        self.offsets: dict[tuple[str, int], int] = {}
        self.versions: dict[tuple[str, int], int] = {}
        self.commits: list[tuple[str, int, int]] = []
        self.refusal = 0
        self.corrupt_next = False
        self.reply_messages_max = 32
        self.sent = 0
        self.subscribes = 0
        self.has_topic = True
        self.forgets = False
        self.retries: list[ToyRecord] = []
        self.retry_topic = ""
        self.groups = ToyGroups(self._find, self._put_retry, self._is_broken)
        self._members: dict[str, dict[str, object]] = {}
        self._sessions: dict[str, SessionStream] = {}
        self._changed = asyncio.Event()

    def append(self, queue_id: int, body: bytes, tag: str = "", *, stored_at_ms: int = 1) -> int:
        """Store a message and return its offset."""
        offset = len(self.queues[queue_id])
        properties = f"UNIQ_KEY\x01{self.name}-{queue_id}-{offset}\x02"
        if tag:
            properties += f"TAGS\x01{tag}\x02"
        data = encode_record(
            topic=TOPIC.encode(),
            queue_id=queue_id,
            body=body,
            properties=properties.encode(),
            born_at_ms=1,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            queue_offset=offset,
            physical_offset=offset * 1000,
            stored_at_ms=stored_at_ms,
        )
        self.queues[queue_id].append(ToyRecord(data, tag, stored_at_ms))
        self.wake()
        return offset

    def delete_topic(self) -> None:
        """Forget the topic with all that is known of it, and end every subscription."""
        self.has_topic = False
        self.queues = [[] for _ in self.queues]
        self.offsets.clear()
        self.versions.clear()
        self.wake()

    def create_topic(self) -> None:
        """Have the topic again."""
        self.has_topic = True

    def wake(self) -> None:
        """Let every pull stream look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def handlers(self) -> list[Handler]:
        """What the broker serves."""
        return [
            stream(contracts.SESSION, self.session),
            stream(contracts.PULL_STREAM, self.pull_stream),
            unary(contracts.LIST_MEMBERS, self.list_members),
            unary(contracts.COMMIT_OFFSETS, self.commit_offsets),
            unary(contracts.QUERY_OFFSET, self.query_offset),
            unary(contracts.DESCRIBE_TOPIC, self.describe_topic),
            unary(contracts.QUERY_OFFSET_BY_TIME, self.query_offset_by_time),
            *self.groups.handlers(),
        ]

    def _find(self, topic: str, queue_id: int, offset: int) -> bytes:
        return self._records(queue_key(topic, queue_id))[offset].data

    def _records(self, queue_id: int) -> list[ToyRecord]:
        return self.retries if queue_id == RETRY_QUEUE else self.queues[queue_id]

    def _is_broken(self, client_id: str) -> bool:
        is_member = any(client_id in members for members in self._members.values())
        return is_member and client_id not in self._sessions

    def _put_retry(self, topic: str, encode: Callable[[int], bytes]) -> None:
        assert self.retry_topic in ("", topic), "toys have one group that sends back"
        self.retry_topic = topic
        self.retries.append(ToyRecord(encode(len(self.retries)), ""))
        self.wake()

    async def session(self, stream: SessionStream, call: Call) -> None:
        hello = (await stream.read() or groups.SessionRequest()).hello
        client_id, life = hello.client_id, object()
        await stream.write(groups.SessionReply(welcome=groups.Welcome()))
        self._sessions[client_id] = stream
        await self._put(client_id, life, [group.group for group in hello.consumer_groups])
        try:
            while (request := await stream.read()) is not None:
                if request.HasField("goodbye"):
                    await self._put(client_id, life, [])
                    return
                names = [group.group for group in request.heartbeat.consumer_groups]
                await self._put(client_id, life, names)
        except (ConnectionLost, ClosedError):
            pass
        finally:
            if self._sessions.get(client_id) is stream:
                del self._sessions[client_id]
            asyncio.get_running_loop().call_later(SESSION_GRACE_S, self._expire, client_id, life)

    async def list_members(
        self, request: groups.ListMembersRequest, call: Call
    ) -> groups.ListMembersReply:
        return groups.ListMembersReply(client_ids=sorted(self._members.get(request.group, {})))

    async def commit_offsets(
        self, request: groups.CommitOffsetsRequest, call: Call
    ) -> groups.CommitOffsetsReply:
        reply = groups.CommitOffsetsReply()
        if not self.has_topic:
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, "deleted")
        for offset in request.offsets:
            queue_id = queue_key(offset.topic, offset.queue_id)
            key = (request.group, queue_id)
            kept, version = self.offsets.get(key, -1), self.versions.get(key, 0)
            told = groups.QueueOffset(topic=offset.topic, queue_id=offset.queue_id, offset=kept)
            told.version = version
            fenced = self.groups.why_not(
                request.group, offset.topic, offset.queue_id, offset.lock_token
            )
            if fenced is not None:
                reply.status.code = ResponseCode.INVALID_PARAMETER
                told.status.CopyFrom(fenced)
                reply.refused.append(told)
                continue
            is_stale = offset.version < version
            if not request.force and (
                is_stale or (offset.version == version and offset.offset < kept)
            ):
                reply.status.code = ResponseCode.INVALID_PARAMETER
                told.status.code = ResponseCode.PULL_OFFSET_MOVED
                reply.refused.append(told)
                continue
            self.offsets[key] = told.offset = offset.offset
            self.commits.append((request.group, queue_id, offset.offset))
            if request.force:
                self.versions[key] = told.version = max(version, offset.version) + 1
                reply.kept.append(told)
        return reply

    async def reset(self, group: str, queue_id: int, offset: int, *, tells: bool = True) -> None:
        """Set a group's offset as an operator does."""
        key = (group, queue_id)
        version = self.versions.get(key, 0) + 1
        self.offsets[key], self.versions[key] = offset, version
        told = groups.QueueOffset(topic=TOPIC, queue_id=queue_id, offset=offset, version=version)
        reset = groups.OffsetsReset(group=group, offsets=[told])
        for client_id in list(self._members.get(group, {})) if tells else []:
            await self._sessions[client_id].write(groups.SessionReply(offsets_reset=reset))

    async def query_offset(
        self, request: groups.QueryOffsetRequest, call: Call
    ) -> groups.QueryOffsetReply:
        assert request.group, "a group has a name"
        key = (request.group, queue_key(request.topic, request.queue_id))
        return groups.QueryOffsetReply(
            offset=self.offsets.get(key, -1), version=self.versions.get(key, 0)
        )

    async def query_offset_by_time(
        self, request: admin.QueryOffsetByTimeRequest, call: Call
    ) -> admin.QueryOffsetByTimeReply:
        assert request.boundary == admin.LOWER
        records = self.queues[request.queue_id]
        found = (n for n, each in enumerate(records) if each.stored_at_ms >= request.at_ms)
        return admin.QueryOffsetByTimeReply(offset=next(found, len(records)))

    async def describe_topic(
        self, request: admin.DescribeTopicRequest, call: Call
    ) -> admin.DescribeTopicReply:
        if request.topic == self.retry_topic:
            status = admin.QueueStatus(queue_id=0, max_offset=len(self.retries))
            return admin.DescribeTopicReply(queues=[status])
        if request.topic != TOPIC or not self.has_topic:
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, f"no topic {request.topic}")
        return admin.DescribeTopicReply(
            queues=[
                admin.QueueStatus(
                    queue_id=queue_id,
                    min_offset=self.min_offsets[queue_id],
                    max_offset=len(records),
                )
                for queue_id, records in enumerate(self.queues)
            ]
        )

    async def pull_stream(self, stream: PullServerStream, call: Call) -> None:
        handles: dict[int, ToyHandle] = {}
        ended: list[messages.PulledRecords] = []
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._feed(stream, handles, ended))
            try:
                while (request := await stream.read()) is not None:
                    self._take(request, handles, ended)
                    self.wake()
            except (ConnectionLost, ClosedError):
                pass
            sending.cancel()

    def _take(
        self,
        request: messages.PullStreamRequest,
        handles: dict[int, ToyHandle],
        ended: list[messages.PulledRecords],
    ) -> None:
        if request.HasField("subscribe"):
            wanted = request.subscribe
            assert wanted.handle not in handles, "a number is used once"
            assert wanted.credit_bytes >= 0
            assert wanted.credit_messages >= 0
            self.subscribes += 1
            if self.refusal or not self.has_topic:
                code = self.refusal or ResponseCode.TOPIC_NOT_EXIST
                status = common.Status(code=code, remark="not now")
                ended.append(messages.PulledRecords(handle=wanted.handle, status=status))
                return
            handles[wanted.handle] = ToyHandle(
                queue_key(wanted.topic, wanted.queue_id),
                wanted.offset,
                wanted.subscription.expression,
                wanted.credit_bytes,
                wanted.credit_messages,
            )
        elif request.HasField("credit"):
            if handle := handles.get(request.credit.handle):
                handle.bytes_left += request.credit.bytes
                handle.messages_left += request.credit.messages
        elif request.HasField("unsubscribe"):
            handles.pop(request.unsubscribe.handle, None)

    async def _feed(
        self,
        stream: PullServerStream,
        handles: dict[int, ToyHandle],
        ended: list[messages.PulledRecords],
    ) -> None:
        try:
            while True:
                changed = self._changed
                if not self.has_topic:
                    status = common.Status(code=ResponseCode.TOPIC_NOT_EXIST, remark="deleted")
                    ended += [messages.PulledRecords(handle=n, status=status) for n in handles]
                    handles.clear()
                if self.forgets:
                    handles.clear()
                pulled = [*ended, *self._read_all(handles)]
                ended.clear()
                if pulled:
                    await stream.write(messages.PullStreamReply(pulled=pulled))
                else:
                    await changed.wait()
        except (ConnectionLost, ClosedError):
            return

    def _read_all(self, handles: Mapping[int, ToyHandle]) -> list[messages.PulledRecords]:
        found = [self._read(number, handle) for number, handle in handles.items()]
        return [pulled for pulled in found if pulled is not None]

    def _read(self, number: int, handle: ToyHandle) -> messages.PulledRecords | None:
        records = self._records(handle.queue_id)
        is_retry = handle.queue_id == RETRY_QUEUE
        least, end = 0 if is_retry else self.min_offsets[handle.queue_id], len(records)
        pulled = messages.PulledRecords(handle=number, min_offset=least, max_offset=end)
        if not least <= handle.offset <= end:
            handle.offset = least if handle.offset < least else end
            pulled.status.code = ResponseCode.PULL_OFFSET_MOVED
            pulled.next_offset = handle.offset
            return pulled
        codes = parse_subscription(TOPIC, handle.expression).tag_codes
        chosen: list[bytes] = []
        begin = handle.offset
        while (
            handle.offset < end
            and len(chosen) < self.reply_messages_max
            and handle.bytes_left > 0
            and handle.messages_left > 0
        ):
            record = records[handle.offset]
            handle.offset += 1
            if codes is None or tag_code(record.tag) in codes:
                chosen.append(record.data)
                handle.bytes_left -= len(record.data)
                handle.messages_left -= 1
        if handle.offset == begin:
            return None
        self.sent += len(chosen)
        pulled.records = b"".join(chosen)
        if self.corrupt_next and chosen:
            self.corrupt_next = False
            pulled.records = pulled.records[:90] + b"?" + pulled.records[91:]
        pulled.record_sizes = struct.pack(f"<{len(chosen)}i", *map(len, chosen))
        pulled.next_offset = handle.offset
        return pulled

    async def _put(self, client_id: str, life: object, names: list[str]) -> None:
        for group, members in self._members.items():
            if group not in names and client_id in members:
                del members[client_id]
                self.groups.locks.left(client_id, group)
                await self._tell(group)
        for group in names:
            members = self._members.setdefault(group, {})
            if client_id not in members:
                members[client_id] = life
                await self._tell(group)
            members[client_id] = life

    def _expire(self, client_id: str, life: object) -> None:
        for members in self._members.values():
            if members.get(client_id) is life:
                del members[client_id]
                self.groups.locks.left(client_id)
                # The others hear of it at their next look: telling may wait, and this may not.

    async def _tell(self, group: str) -> None:
        for client_id in list(self._members[group]):
            if session := self._sessions.get(client_id):
                change = groups.MembersChanged(group=group)
                try:
                    await session.write(groups.SessionReply(members_changed=change))
                except (ConnectionLost, ClosedError):
                    continue


class ToyCluster:
    """A NameServer that knows one topic, and the brokers that serve it.

    Attributes:
        brokers: By name.
    """

    def __init__(self, network: MemoryNetwork, random: Random) -> None:
        self.network = network
        self.random = random
        self.brokers: dict[str, ToyBroker] = {}
        self._addresses: dict[str, Address] = {}
        self.nameserver = ""

    @property
    def queues(self) -> list[MessageQueue]:
        """Every queue of the topic, sorted."""
        return sorted(
            MessageQueue(TOPIC, name, queue_id)
            for name, broker in self.brokers.items()
            for queue_id in range(len(broker.queues))
        )

    def environment(self, host: str) -> Environment:
        """Return the world as a client on `host` sees it."""
        return Environment(
            clock=VirtualClock(),
            network=self.network.host(host),
            random=Random(self.random.random()),
            blocking=InlineBlocking(),
        )

    def append(self, queue: MessageQueue, body: bytes, tag: str = "") -> int:
        """Store a message and return its offset."""
        return self.brokers[queue.broker_name].append(queue.queue_id, body, tag)

    def committed(self, group: str, queue: MessageQueue) -> int:
        """Return the committed offset, -1 for none."""
        return self.brokers[queue.broker_name].offsets.get((group, queue.queue_id), -1)

    def add(self, name: str, broker: ToyBroker, address: Address) -> None:
        """Let the route tell of a broker that is served elsewhere."""
        self.brokers[name] = broker
        self._addresses[name] = address

    async def route(
        self, request: nameserver.GetTopicRouteRequest, call: Call
    ) -> nameserver.GetTopicRouteReply:
        serving = [name for name, broker in sorted(self.brokers.items()) if broker.has_topic]
        is_retry = request.topic != TOPIC
        if is_retry:
            serving = [name for name in serving if self.brokers[name].retry_topic == request.topic]
        if not serving:
            raise TopicNotFound(ResponseCode.TOPIC_NOT_EXIST, f"no topic {request.topic}")
        route = TopicRoute(
            request.topic,
            queues=tuple(
                QueueData(name, count, count, Permission(6))
                for name in serving
                for count in [1 if is_retry else len(self.brokers[name].queues)]
            ),
            brokers=tuple(
                BrokerData("toys", name, (BrokerMember(0, (self._addresses[name],)),))
                for name in serving
            ),
        )
        return nameserver.GetTopicRouteReply(route=route_to_pb(route))

    @asynccontextmanager
    async def serving(self, name: str, queue_count: int) -> AsyncGenerator[Server, None]:
        """Serve a broker, a new one or the old one again, while the block runs."""
        broker = self.brokers.get(name) or ToyBroker(name, queue_count)
        listen = self._addresses.get(name, Address(name, 10_911))
        identity = Identity("toys", name, 0, 0)
        served = self.network.host(name).serve(broker.handlers(), listen, identity=identity)
        async with served as server:
            self.brokers[name] = broker
            self._addresses[name] = server.address
            yield server


@asynccontextmanager
async def toy_cluster(
    *, seed: int = 1, brokers: int = 1, queues: int = 8, latency_s: float = 0.001
) -> AsyncGenerator[ToyCluster, None]:
    """Run a NameServer and brokers with `queues` each while the block runs."""
    random = Random(seed)
    async with MemoryNetwork(
        random, latency_s=lambda drawn: drawn.uniform(0.2, 1.8) * latency_s
    ) as network:
        cluster = ToyCluster(network, random)
        handlers = [unary(contracts.GET_TOPIC_ROUTE, cluster.route)]
        async with network.host("nameserver").serve(
            handlers, Address("nameserver", 9876)
        ) as server:
            cluster.nameserver = str(server.address)
            async with AsyncExitStack() as stack:
                for number in range(brokers):
                    await stack.enter_async_context(cluster.serving(f"broker-{number}", queues))
                yield cluster
