"""The broker's settings."""

import socket
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ternmq_model.address import (
    ANY_HOST,
    PORT_MAX,
    Address,
    is_host,
    is_unspecified,
    listen_address,
    parse_addresses,
)
from ternmq_model.arguments import check_range
from ternmq_model.default_nameserver import DEFAULT_NAMESERVER
from ternmq_model.errors import ConfigError, IllegalName
from ternmq_model.message_id import host_bytes
from ternmq_model.properties import NAME_END, PAIR_END
from ternmq_model.route import MASTER_ID, QUEUES_MAX, check_broker_name, check_cluster
from ternmq_store.config import FlushMode

MIB: Final = 1 << 20
FORMER_MASTER_ID: Final = 100
"""Registered id of a former master with id 0 while another member is the master."""

BROKER_ID_MAX: Final = 1_000_000
REPLICAS_MAX: Final = 32


class BrokerRole(StrEnum):
    """Role of a member of a broker name. Source: RocketMQ `BrokerRole`."""

    ASYNC_MASTER = "async_master"
    """Answers when the message is safe here; slaves follow."""

    SYNC_MASTER = "sync_master"
    """Answers when enough members have the message safe."""

    SLAVE = "slave"
    """Follows a master. Once promoted: as that master was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerConfig:
    """Settings of one broker, in bytes and milliseconds unless a name says otherwise.

    Raises:
        ConfigError: A setting cannot work; names it.
    """

    cluster: str = "DefaultCluster"
    """Cluster in which the broker is registered."""

    name: str = "broker-a"
    """Name of the broker, to which its queues belong. A master and its slaves have the same."""

    broker_id: int = MASTER_ID
    """Id of the member, unique within the broker name: 0 = starts as the master, above 0 = starts
    as a slave. A promotion outlives restarts."""

    role: BrokerRole = BrokerRole.ASYNC_MASTER
    """Role of the broker as master: `async_master` or `sync_master`. `slave` needs a `broker_id`
    above 0; after a promotion the role of the former master holds."""

    in_sync_replicas: int = 0
    """Number of members, the master included, that must have stored a message before it is
    confirmed; 0 = two for a `sync_master`, else one."""

    refuse_without_replicas: bool = False
    """Refusal of messages by a `sync_master` with too few slaves. Off: messages are stored and
    answered with SLAVE_NOT_AVAILABLE."""

    slave_timeout_ms: int = 2_000
    """Limit on the wait of a send for slaves, and on the time without an acknowledgement after
    which sends no longer wait for a slave that is behind, ms."""

    force_master: bool = False
    """Start as master without a confirmation that no newer master exists. For one start by hand:
    two masters of one name lose the messages of one of them."""

    data: Path = Path(".ternmq/broker")
    """Directory of messages, tables and offsets. One broker at a time may have it open."""

    listen: str = "127.0.0.1"
    """Host to listen on. `0.0.0.0` or `::` = every interface."""

    port: int = 10911
    """Port to listen on; 0 = any free one."""

    plain_port: int | None = None
    """Second port, without TLS, beside `port` with TLS: for the move of a running cluster. It is
    registered behind that of `port`, unless `advertised` names the addresses. None = none."""

    advertised: tuple[str, ...] = ()
    """Addresses at which clients reach this broker, as `HOST:PORT`, best first. The host `*` = the
    host through which a client reached the NameServer. Empty = derived from `listen`."""

    hostname: str = ""
    """Name of this machine, registered when the broker listens on every interface. Empty = the
    system's host name."""

    store_host: str = ""
    """IP address in message ids. Empty = the advertised address, the listening one or that of this
    machine."""

    nameservers: tuple[str, ...] = (DEFAULT_NAMESERVER,)
    """Addresses of all NameServers, as `HOST:PORT`. Empty = no registration."""

    flush_mode: FlushMode = FlushMode.SYNC
    """Flush mode: with `sync` a send is answered when it is on disk, with `async` at once. With
    `async` a crash of the machine loses the last half second."""

    region: str = "DefaultRegion"
    """Property MSG_REGION of every message."""

    draining: bool = False
    """Refusal of messages with GO_AWAY, for which producers wait up to the timeout of a send; other
    requests are served. `ternmq broker drain` sets it until the broker stops or changes its role.
    No effect on a slave, also after its promotion, until its process starts as the master."""

    trace: bool = True
    """Property TRACE_ON of every message."""

    store_replies: bool = True
    """Storage of replies to requests in `<cluster>_REPLY_TOPIC` after they were forwarded."""

    trace_topic_enabled: bool = False
    """Creation of the topic RMQ_SYS_TRACE_TOPIC, to which clients with tracing send a trace of each
    message."""

    auto_create_topics: bool = True
    """Creation of unknown topics by sends."""

    default_topic_queues: int = 8
    """Queues of the template TBW102: the limit for topics that sends create."""

    registration_interval_ms: int = 30_000
    """Pause between two registrations without a change, ms; 10,000 to 60,000."""

    offsets_interval_ms: int = 5_000
    """Pause between two saves of consumer offsets, ms. A crash loses the commits of one pause."""

    clock_follow_ms: int = 600_000
    """Time for which a step of the machine's wall clock must hold before the broker follows it, ms.
    After a start with a clock more than a minute from the newest record and from the last clean
    stop, no file is deleted by its age for this time."""

    unanswered_max_bytes: int = 64 * MIB
    """Limit on received and unanswered bytes of all send streams; beyond it, streams are not read,
    and then answered with SYSTEM_BUSY."""

    stream_unanswered_max_bytes: int = 8 * MIB
    """Limit on received and unanswered bytes of one send stream; beyond it, the stream is not read,
    and then answered with SYSTEM_BUSY."""

    unread_max_ms: int = 200
    """Time without reads after which the next batch of a stream is answered with SYSTEM_BUSY,
    ms."""

    pull_wait_max_ms: int = 30_000
    """Longest time for which a pull without messages is held, ms."""

    long_polling_enabled: bool = True
    """Long polling: a held pull is answered as soon as a message arrives. Off = short polling: it
    is answered after `short_polling_ms`."""

    short_polling_ms: int = 1_000
    """Time for which short polling holds a pull, and interval between reads of a pull stream,
    ms."""

    scan_processes: int = 2
    """Number of processes that read ranges of queues for data pipelines, as Arrow batches; further
    scans wait in turn. A process ends after an idle minute. Needs pyarrow. 0 = scans are refused,
    and pipelines pull."""

    scan_stall_ms: int = 60_000
    """Time after which a scan without progress of its reader ends, ms; the reader may scan again.
    Until then retention does not delete the files of the scan, unless the disk is full."""

    slave_read_enabled: bool = True
    """Reads from slaves: without a master, and by groups so far behind that their messages are no
    longer in the memory of the master (`broker_id_when_slow` of the group). Off: all groups read
    from the master."""

    slave_offset_check_enabled: bool = False
    """Correction of offsets outside a queue by a slave, from its own messages. Off: such a reader
    waits for the master, since a slave may lack messages."""

    property_filter_enabled: bool = True
    """Filters by conditions on properties (SQL92). RocketMQ's default is off; here the cost of a
    condition is bounded, and evaluation yields to other requests."""

    retry_filter_enabled: bool = False
    """Filtering of retried messages by the present subscription of the group to their original
    topic. Off: every message is retried, also after a change of the subscription."""

    filter_bit_maps_enabled: bool = False
    """Evaluation of the conditions of all groups when a message is stored. Its bit map of matching
    groups lets reads skip other messages without reading them. Needs
    `store.consume_queue_ext_enabled`."""

    timer_enabled: bool = True
    """Timed messages, up to 3 days ahead. Off = they are refused, and waiting ones stay until it is
    on again."""

    timer_pending_max: int = 10_000_000
    """Limit on waiting timed messages; each takes about 9 bytes of memory."""

    memory_bytes: int = 0
    """Memory for the newest messages, bytes: a new group begins at the first message while that is
    likely to be in memory. 0 = the memory of this machine, or of the container."""

    broken_session_ms: int = 10_000
    """Time after which a client with a broken session is removed, ms."""

    silent_session_ms: int = 60_000
    """Time after which a client without a heartbeat is removed, ms."""

    dots_in_names_allowed: bool = False
    """Creation of topics and groups with dots in their names, such as `orders.created`, which
    RocketMQ refuses. Off: existing ones stay usable."""

    same_subscriptions_required: bool = False
    """Refusal of consumers that subscribe differently from the live members of their group: to
    other topics, with other filters, or in another message model. Off: logs of members and `ternmq
    group describe` list the differences."""

    lock_lease_ms: int = 30_000
    """Lease of the lock of an orderly consumer on a queue, ms; the consumer renews it."""

    transactions_accepted: bool = True
    """Acceptance of half messages. Off: new ones are refused; open transactions can still end."""

    transactions_open_max: int = 1_000_000
    """Limit on open transactions; beyond it, half messages are refused with FLOW_CONTROL. A
    transaction takes about 400 bytes of memory."""

    transaction_timeout_ms: int = 6_000
    """Time until the first check of a half message without its own immunity time, ms."""

    transaction_check_interval_ms: int = 30_000
    """Pause between two checks of a half message, ms."""

    transaction_checks_max: int = 15
    """Limit on checks of a half message; then it is stored in TRANS_CHECK_MAX_TIME_TOPIC and rolled
    back."""

    transaction_op_interval_ms: int = 3_000
    """Time for which op entries are gathered into one op message, ms."""

    transaction_op_bytes: int = 4_096
    """Length at which an op message is written before `transaction_op_interval_ms`, bytes."""

    def __post_init__(self) -> None:
        for setting, name, check in (
            ("broker.cluster", self.cluster, check_cluster),
            ("broker.name", self.name, check_broker_name),
        ):
            try:
                check(name)
            except IllegalName as error:
                raise ConfigError(setting, name, error.rule) from None
        self._check_role()
        for setting, value, least, most in (
            ("port", self.port, 0, PORT_MAX),
            ("plain_port", 1 if self.plain_port is None else self.plain_port, 1, PORT_MAX),
            ("broker_id", self.broker_id, MASTER_ID, BROKER_ID_MAX),
            ("in_sync_replicas", self.in_sync_replicas, 0, REPLICAS_MAX),
            ("slave_timeout_ms", self.slave_timeout_ms, 10, 600_000),
            ("default_topic_queues", self.default_topic_queues, 1, QUEUES_MAX),
            ("registration_interval_ms", self.registration_interval_ms, 10_000, 60_000),
            ("offsets_interval_ms", self.offsets_interval_ms, 100, 60_000),
            ("clock_follow_ms", self.clock_follow_ms, 1_000, 86_400_000),
            ("unanswered_max_bytes", self.unanswered_max_bytes, MIB, 1 << 40),
            (
                "stream_unanswered_max_bytes",
                self.stream_unanswered_max_bytes,
                MIB,
                self.unanswered_max_bytes,
            ),
            ("unread_max_ms", self.unread_max_ms, 1, 60_000),
            ("pull_wait_max_ms", self.pull_wait_max_ms, 0, 300_000),
            ("short_polling_ms", self.short_polling_ms, 10, 60_000),
            ("scan_processes", self.scan_processes, 0, 64),
            ("scan_stall_ms", self.scan_stall_ms, 1_000, 3_600_000),
            ("timer_pending_max", self.timer_pending_max, 1, 1 << 30),
            ("memory_bytes", self.memory_bytes, 0, 1 << 50),
            ("broken_session_ms", self.broken_session_ms, 0, 600_000),
            ("transactions_open_max", self.transactions_open_max, 1, 1 << 32),
            ("transaction_timeout_ms", self.transaction_timeout_ms, 1, 86_400_000),
            ("transaction_check_interval_ms", self.transaction_check_interval_ms, 1, 86_400_000),
            ("transaction_checks_max", self.transaction_checks_max, 1, 1_000_000),
            ("transaction_op_interval_ms", self.transaction_op_interval_ms, 1, 60_000),
            ("transaction_op_bytes", self.transaction_op_bytes, 1, 1 << 20),
            ("silent_session_ms", self.silent_session_ms, 1_000, 3_600_000),
            ("lock_lease_ms", self.lock_lease_ms, 1_000, 3_600_000),
        ):
            check_range(f"broker.{setting}", value, least, most)
        if not self.region or {NAME_END, PAIR_END} & set(self.region):
            raise ConfigError(
                "broker.region", self.region, "must not be empty or contain 0x01 or 0x02"
            )
        if self.store_host:
            self._check_store_host()
        if self.hostname and (not is_host(self.hostname) or is_unspecified(self.hostname)):
            rule = "must be a host name or an IP address that others can dial"
            raise ConfigError("broker.hostname", self.hostname, rule)
        _ = self.listen_address, self.nameserver_addresses, self.advertised_addresses

    def _check_role(self) -> None:
        if self.role is BrokerRole.SLAVE and self.broker_id == MASTER_ID:
            raise ConfigError("broker.role", self.role.value, "needs a broker_id above 0")
        if self.broker_id == FORMER_MASTER_ID:
            rule = "is reserved for a former master"
            raise ConfigError("broker.broker_id", self.broker_id, rule)
        if self.in_sync_replicas > 1 and self.role is BrokerRole.ASYNC_MASTER:
            rule = "means something for a sync_master alone"
            raise ConfigError("broker.in_sync_replicas", self.in_sync_replicas, rule)
        if self.refuse_without_replicas and self.role is BrokerRole.ASYNC_MASTER:
            rule = "means something for a sync_master alone"
            raise ConfigError("broker.refuse_without_replicas", True, rule)

    @property
    def replicas_needed(self) -> int:
        """Number of members that must have stored a message when this one is the master.

        A slave knows the number of its master from the replication record.
        """
        if self.role is BrokerRole.ASYNC_MASTER:
            return 1
        return self.in_sync_replicas or 2

    def _check_store_host(self) -> None:
        try:
            host_bytes(Address(self.store_host, 0))
        except ValueError:
            rule = "must be an IPv4 or IPv6 address"
            raise ConfigError("broker.store_host", self.store_host, rule) from None

    @property
    def listen_address(self) -> Address:
        """Address to listen on."""
        return listen_address(self.listen, self.port, setting="broker.listen")

    @property
    def nameserver_addresses(self) -> tuple[Address, ...]:
        """Every NameServer, each once."""
        return parse_addresses(self.nameservers, setting="broker.nameservers")

    @property
    def advertised_addresses(self) -> tuple[Address, ...]:
        """Addresses for clients, as the operator configured them."""
        return parse_addresses(self.advertised, setting="broker.advertised", may_be_any=True)

    def endpoints(self, port: int) -> tuple[Address, ...]:
        """Return what to register: where clients find this broker, best first.

        Args:
            port: The port it really listens on.
        """
        if self.advertised:
            return self.advertised_addresses
        ports = (port,) if self.plain_port is None else (port, self.plain_port)
        host = self.listen_address.host
        if not is_unspecified(host):
            return tuple(Address(host, each) for each in ports)
        hosts = (self.hostname or socket.gethostname(), ANY_HOST)
        found = [Address(host, each) for each in ports for host in hosts]
        return tuple(each for each in found if each.is_legal_endpoint)

    @property
    def own_name(self) -> str:
        """Name or address of this machine from the settings."""
        host = self.listen_address.host
        return self.hostname or socket.gethostname() if is_unspecified(host) else host

    @property
    def pull_wait_ms(self) -> int:
        """Time for which a pull without messages is held, ms."""
        if self.long_polling_enabled:
            return self.pull_wait_max_ms
        return min(self.pull_wait_max_ms, self.short_polling_ms)

    def store_host_bytes(self, port: int, *, own_host: str) -> bytes:
        """Return STOREHOST of every message: names this broker in ids, is never dialled.

        Args:
            port: The port it really listens on.
            own_host: The IP address of `own_name`.
        """
        hosts = (self.store_host, *(each.host for each in self.endpoints(port)), own_host)
        for host in hosts:
            if host not in ("", ANY_HOST) and not is_unspecified(host):
                try:
                    return host_bytes(Address(host, port))
                except ValueError:
                    continue
        return host_bytes(Address("127.0.0.1", port))
