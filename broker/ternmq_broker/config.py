"""The broker's settings."""

import socket
from collections.abc import Sequence
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
    parse_address,
)
from ternmq_model.errors import ConfigError, IllegalName
from ternmq_model.message_id import host_bytes
from ternmq_model.route import MASTER_ID, QUEUES_MAX, check_broker_name, check_cluster
from ternmq_store.config import FlushMode

MIB: Final = 1 << 20
FORMER_MASTER_ID: Final = 100
"""Id under which a member whose own is 0 is registered while another is the master."""

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
    """The cluster that the broker is registered in."""

    name: str = "broker-a"
    """The broker's name: what queues belong to. A master and its slaves share one."""

    broker_id: int = MASTER_ID
    """0 = starts as the master; any other, unlike those of the other members: as its slave. A
    promotion outlives restarts."""

    role: BrokerRole = BrokerRole.ASYNC_MASTER
    """Role of the broker as master: `async_master` or `sync_master`. `slave` needs a `broker_id`
    above 0; after a promotion the role of the former master holds."""

    in_sync_replicas: int = 0
    """Number of members, the master included, that must have stored a message before it is
    confirmed; 0 = two for a `sync_master`, else one."""

    refuse_without_replicas: bool = False
    """A `sync_master` with too few slaves refuses messages before they are stored. Off: it stores
    them, and answers SLAVE_NOT_AVAILABLE."""

    slave_timeout_ms: int = 2_000
    """Limit on the wait of a send for slaves, and on the time without an acknowledgement after
    which sends no longer wait for a slave that is behind, ms."""

    force_master: bool = False
    """Start as master though nobody confirms that there is no newer one. For once, by hand: two
    masters of one name lose what one of them stored."""

    data: Path = Path(".ternmq/broker")
    """Directory of messages, tables and offsets. One broker at a time may have it open."""

    listen: str = "127.0.0.1"
    """Host to listen on. `0.0.0.0` or `::` = every interface, without authentication."""

    port: int = 10911
    """Port to listen on; 0 = any free one."""

    advertised: tuple[str, ...] = ()
    """Addresses at which clients reach this broker, as `HOST:PORT`, best first. The host `*` = the
    one through which a client reached the NameServer. Empty = worked out from `listen`."""

    hostname: str = ""
    """Name of this machine, registered when the broker listens on every interface. Empty = the
    system's host name."""

    store_host: str = ""
    """IP address that message ids carry. Empty = the advertised, listening or this machine's."""

    nameservers: tuple[str, ...] = ("127.0.0.1:9876",)
    """Every NameServer, as `HOST:PORT`. Empty = registered nowhere."""

    flush_mode: FlushMode = FlushMode.SYNC
    """`sync`: a send is answered when it is on disk. `async`: at once; a crash of the machine loses
    the last half second."""

    region: str = "DefaultRegion"
    """Property MSG_REGION of every message."""

    draining: bool = False
    """Producers' messages are refused with GO_AWAY, through which producers wait for the length of
    a send; everything else goes on. `ternmq broker drain` sets it until the broker stops or changes
    its role. Of a slave: no effect, also once it is promoted, until its process starts again as
    the master."""

    trace: bool = True
    """Property TRACE_ON of every message."""

    store_replies: bool = True
    """Replies to requests are stored in `<cluster>_REPLY_TOPIC` once they are passed on."""

    trace_topic_enabled: bool = False
    """Creation of the topic RMQ_SYS_TRACE_TOPIC, to which clients with tracing send a trace of each
    message."""

    auto_create_topics: bool = True
    """A send to an unknown topic creates it."""

    default_topic_queues: int = 8
    """Queues of the template TBW102: the most that a topic created by a send gets."""

    registration_interval_ms: int = 30_000
    """Pause between two registrations when nothing changes; 10,000 to 60,000."""

    offsets_interval_ms: int = 5_000
    """Pause between two saves of consumer offsets: what a crash may set back."""

    clock_follow_ms: int = 600_000
    """Time for which a step of the machine's wall clock must hold before the broker follows it, ms.
    After a start with a clock more than a minute from the newest record and from the last clean
    stop, no file is deleted by its age for this time."""

    unanswered_max_bytes: int = 64 * MIB
    """Bytes of all streams, received and not yet answered: beyond it, streams are left unread, then
    answered busy."""

    stream_unanswered_max_bytes: int = 8 * MIB
    """Bytes of one stream, received and not yet answered: beyond it, that stream is left unread,
    then answered busy."""

    unread_max_ms: int = 200
    """Time for which a stream may stay unread before its next batch is answered busy, ms."""

    pull_wait_max_ms: int = 30_000
    """Longest time that a pull without messages is held."""

    long_polling_enabled: bool = True
    """A pull without messages is answered as soon as there is one for it. Off = short polling: it
    is held for `short_polling_ms` at most, and looked after no sooner."""

    short_polling_ms: int = 1_000
    """Short polling: how long a pull is held, and how often streams look for messages."""

    scan_processes: int = 2
    """Processes that read whole stretches of queues for data pipelines, as Arrow batches; who finds
    all of them busy waits in turn. One that had nothing to do for a minute ends. Needs pyarrow.
    0 = scans are refused, and pipelines pull."""

    scan_stall_ms: int = 60_000
    """A scan whose reader takes nothing for so long ends, and its reader asks again. Until then
    retention leaves the files alone that it needs, unless the disk is full."""

    slave_read_enabled: bool = True
    """Slaves may be read from: when their master is gone, and by a group that is so far behind that
    its messages are no longer in the master's memory (`broker_id_when_slow` of its settings). Off:
    everybody reads from the master."""

    slave_offset_check_enabled: bool = False
    """A slave corrects an offset that lies outside a queue by what it has itself, as a master does.
    Off: such a reader waits until its master answers, since a slave may not have everything yet."""

    property_filter_enabled: bool = True
    """Consumers may filter by conditions on properties (SQL92). RocketMQ's default is off; here a
    condition is bounded in what it costs, and other readers and senders get their turns."""

    retry_filter_enabled: bool = False
    """A group's messages that come again are filtered once more, by what the group wants of their
    original topic now. Off: each comes again, also when the subscription was changed meanwhile."""

    filter_bit_maps_enabled: bool = False
    """The broker evaluates every group's condition when a message is stored, and keeps a bit map of
    who may want it, so that reads pass the others over without reading them. Needs
    `store.consume_queue_ext_enabled`."""

    timer_enabled: bool = True
    """Messages may ask for a time of delivery, up to 3 days ahead. Off = they are refused, and what
    waits does so until it is on again."""

    timer_pending_max: int = 10_000_000
    """Timed messages that may wait: each takes about 9 bytes of memory."""

    memory_bytes: int = 0
    """Memory for keeping the newest messages at hand: a group that is new begins at the first
    message while that is likely to be in it. 0 = this machine's, or the container's."""

    broken_session_ms: int = 10_000
    """A client whose session broke is gone after this."""

    silent_session_ms: int = 60_000
    """A client that sends no heartbeat is gone after this."""

    dots_in_names_allowed: bool = False
    """Creation of topics and groups with dots in their names, such as `orders.created`, which
    RocketMQ refuses. Off: existing ones stay usable."""

    same_subscriptions_required: bool = False
    """Refuse a consumer that joins a group whose live members subscribe otherwise: to other topics,
    with other filters, or in another message model. Off: members that differ are told of in their
    logs and in `ternmq group describe`."""

    lock_lease_ms: int = 30_000
    """A queue that an orderly consumer locked is free after this, unless the lock is renewed."""

    transactions_accepted: bool = True
    """Acceptance of half messages. Off: new ones are refused; open transactions can still end."""

    transactions_open_max: int = 1_000_000
    """Open transactions; beyond it, half messages are refused as flow control. One takes about
    400 bytes of memory."""

    transaction_timeout_ms: int = 6_000
    """Time until the producers of a half message without a time of its own are asked for its
    transaction state, ms."""

    transaction_check_interval_ms: int = 30_000
    """Pause between two questions."""

    transaction_checks_max: int = 15
    """Questions; then the message is put into TRANS_CHECK_MAX_TIME_TOPIC and rolled back."""

    transaction_op_interval_ms: int = 3_000
    """Time for which op entries are gathered into one op message, ms."""

    transaction_op_bytes: int = 4_096
    """Length at which an op message is written before that."""

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
            if not least <= value <= most:
                raise ConfigError(f"broker.{setting}", value, f"must be {least} to {most}")
        if not self.region or {"\x01", "\x02"} & set(self.region):
            raise ConfigError("broker.region", self.region, "must not be empty or hold 0x01, 0x02")
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
            rule = "is kept for a master that another took the place of"
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

        For a `slave`, whose master told its own role, `replication.state` knows more.
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
        return _addresses(self.nameservers, "broker.nameservers", may_be_any=False)

    @property
    def advertised_addresses(self) -> tuple[Address, ...]:
        """Addresses for clients, as the operator configured them."""
        return _addresses(self.advertised, "broker.advertised", may_be_any=True)

    def endpoints(self, port: int) -> tuple[Address, ...]:
        """Return what to register: where clients find this broker, best first.

        Args:
            port: The port it really listens on.
        """
        if self.advertised:
            return self.advertised_addresses
        host = self.listen_address.host
        if not is_unspecified(host):
            return (Address(host, port),)
        named = Address(self.hostname or socket.gethostname(), port)
        everywhere = Address(ANY_HOST, port)
        return (named, everywhere) if named.is_legal_endpoint else (everywhere,)

    @property
    def own_name(self) -> str:
        """A name or address of this machine, as far as the settings tell."""
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


def _addresses(texts: Sequence[str], setting: str, *, may_be_any: bool) -> tuple[Address, ...]:
    """Return the addresses, each once; all can be dialled.

    Args:
        texts: As an operator wrote them.
        setting: Its name, for the error.
        may_be_any: The host "*" is legal: the one through which a reader reached the NameServer.

    Raises:
        ConfigError: One of them cannot be dialled; names that one.
    """
    addresses: list[Address] = []
    for text in texts:
        address = parse_address(text, setting=setting)
        is_any = may_be_any and address.host == ANY_HOST
        if not address.port:
            raise ConfigError(setting, text, "needs a port to dial")
        if not is_any and (not is_host(address.host) or is_unspecified(address.host)):
            raise ConfigError(setting, text, "needs a host name or an IP address to dial")
        addresses.append(address)
    return tuple(dict.fromkeys(addresses))
