"""Errors that TernMQ raises on purpose.

* `TernError`
    * `UsageError`: the caller must change the call; never retried.
        * `ConfigError`: a setting is illegal
        * `SettingsError`: every illegal setting of a process
        * `IllegalName`: the name of a topic or group breaks the rules
        * `AccessNotFound`: there is no such user, token or grant
        * `IllegalMessage`: no broker would accept the message
        * `SendVetoed`: an interceptor of the producer refused the message
        * `MissingPackage`: an optional package is not installed; the text names its extra
        * `ClosedError`: the object is not open yet, or is closed
    * `RefusedError`: a peer refused the request. `code` has the reason; some are retryable.
        * `TopicNotFound`, `GroupNotFound`, `BrokerBusy`, `BrokerDraining`, `MessageRefused`,
          `PermissionRefused`, `InvalidParameter`, `MessageNotFound`, `ClientNotOnline`
        * `RangeLost`: requested messages are not in their queue
    * `TransportError`: no answer arrived.
        * `Unreachable` (retryable), with the subclass `BrokersUnreachable` in
          `ternmq_client.admin.descriptions`
        * `RequestTimedOut` (retryable, may have happened)
        * `ConnectionLost` (retryable, may have happened)
    * `SendManyFailed`: some of many messages were not stored; `results` has the errors. The class
      lies in `ternmq_model.message`.
    * `CannotListen`: the address of a service is in use, or belongs to another machine.
    * `StoreError`: the local disk or its content failed.
        * `CorruptRecord`, with the subclass `CorruptBody` for an unreadable compressed body
        * `StoreFull`, `StoreLocked`, `StoreFailed`, `StoreNotFound`

Each error has the party at fault (`fault`), whether a retry may succeed (`retryable`), and whether
the peer may have done the request (`may_have_happened`).
"""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import CALLERS_CODES, RETRYABLE_CODES, ResponseCode


class Fault(Enum):
    """Party that has to change something before a call can succeed.

    Attributes:
        CALLER: The call is wrong: repeated, it fails again.
        BROKER: The service or its disk is busy, closing, full or broken.
        NETWORK: No peer answered.
    """

    CALLER = "caller"
    BROKER = "broker"
    NETWORK = "network"


class TernError(Exception):
    """Base of the errors that this library raises on purpose."""

    fault: Fault = Fault.BROKER
    """Party that has to change something before the same call can succeed."""

    retryable: bool = False
    """True when the same call may succeed later, or at another broker."""

    may_have_happened: bool = False
    """True when the peer may have done the request, so that a retry may duplicate it."""


class UsageError(TernError):
    """Error of the caller, who must change the call."""

    fault = Fault.CALLER


class ConfigError(UsageError):
    """Illegal setting; the text has the setting, its value and the rule that it breaks."""

    def __init__(self, setting: str, value: object, rule: str) -> None:
        super().__init__(f"{setting}={value!r}: {rule}")
        self.setting = setting
        self.value = value
        self.rule = rule


class SettingsError(UsageError):
    """Illegal settings of a process, all of them at once.

    Attributes:
        problems: One line for each setting: its value, the broken rule, and its source.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the settings cannot work:" + "".join(f"\n  {line}" for line in problems))
        self.problems = tuple(problems)


class IllegalName(UsageError):
    """Name of a topic or group that breaks the rules."""

    def __init__(self, kind: str, name: str, rule: str) -> None:
        super().__init__(f"{kind} {name!r}: {rule}")
        self.kind = kind
        self.name = name
        self.rule = rule


class AccessNotFound(UsageError):
    """User, token, grant or denied certificate that the table of permissions does not have."""


class IllegalMessage(UsageError):
    """Message that no broker would accept; the producer has not sent it."""


class SendVetoed(UsageError):
    """Refusal of a message by an interceptor, whose exception is `__cause__`; nothing was sent."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(f"an interceptor refused the message: {reason!r}")


class MissingPackage(UsageError, ImportError):
    """Call that needs a package which is not installed."""


class JobFailed(TernError):
    """Failure of a job of the pipeline. The results of the job so far stay."""


class ClosedError(UsageError):
    """Use of an object before it was opened or after it was closed."""


class RefusedError(TernError):
    """Refusal of a request by a peer.

    Attributes:
        code: RocketMQ's response code.
        remark: Reason of the peer.
        peer: Broker name or address of the peer.
    """

    def __init__(self, code: int, remark: str, peer: str = "") -> None:
        try:
            label = ResponseCode(code).name
        except ValueError:
            label = "UNKNOWN"
        super().__init__(f"{peer + ': ' if peer else ''}{remark} [{label} {code}]")
        self.code = code
        self.remark = remark
        self.peer = peer
        self.retryable = code in RETRYABLE_CODES
        self.fault = Fault.CALLER if code in CALLERS_CODES else Fault.BROKER


class TopicNotFound(RefusedError):
    """Topic that no broker has, and that no broker may create."""


class GroupNotFound(RefusedError):
    """Group that the broker does not know."""


class MessageNotFound(RefusedError):
    """Id or offset at which the broker has no message."""


class BrokerBusy(RefusedError):
    """Refusal of a broker that is overloaded; nothing was stored."""


class BrokerDraining(RefusedError):
    """Refusal of a broker that is draining before its end; this attempt stored nothing.

    Producers first send to another broker, or wait until the timeout of the send.
    `may_have_happened` is True only when an earlier attempt was left in doubt.
    """


class MessageRefused(RefusedError):
    """Refusal of an illegal message by the broker; the message was not stored."""


class PermissionRefused(RefusedError):
    """Request that the permissions of the topic, group or broker forbid."""


class ClientNotOnline(RefusedError):
    """Client without a session at the broker."""


class InvalidParameter(RefusedError):
    """Request with an illegal queue, offset or value."""


class RangeLost(RefusedError):
    """Requested messages that are not in their queue, which begins later or ends earlier.

    Attributes:
        topic: Topic of the queue.
        broker_name: Broker of the queue.
        queue_id: Number of the queue.
        wanted_offset: Offset of the first requested message that is missing.
        first_offset: Offset of the queue's oldest message.
        end_offset: Offset behind the queue's newest message; None = unknown, since the queue begins
            too late.
        topic_remark: Reason why the topic is missing; empty = the topic exists.
    """

    def __init__(
        self,
        *,
        topic: str,
        broker_name: str,
        queue_id: int,
        wanted_offset: int,
        first_offset: int,
        end_offset: int | None = None,
        topic_remark: str = "",
    ) -> None:
        if topic_remark:
            kept = topic_remark
        elif end_offset is None:
            kept = f"messages before {first_offset} are no longer kept"
        else:
            kept = f"the queue ends at {end_offset}"
        queue = f"queue {queue_id} of topic {topic!r} at broker {broker_name}"
        remark = f"{queue} has no message at offset {wanted_offset}: {kept}"
        super().__init__(ResponseCode.PULL_OFFSET_MOVED, remark)
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.wanted_offset = wanted_offset
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.topic_remark = topic_remark


_BY_CODE: dict[int, type[RefusedError]] = {
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFound,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFound,
    ResponseCode.QUERY_NOT_FOUND: MessageNotFound,
    ResponseCode.SYSTEM_BUSY: BrokerBusy,
    ResponseCode.FLOW_CONTROL: BrokerBusy,
    ResponseCode.GO_AWAY: BrokerDraining,
    ResponseCode.MESSAGE_ILLEGAL: MessageRefused,
    ResponseCode.NO_PERMISSION: PermissionRefused,
    ResponseCode.CONSUMER_NOT_ONLINE: ClientNotOnline,
    ResponseCode.INVALID_PARAMETER: InvalidParameter,
}


def refusal(
    code: int, remark: str, peer: str = "", *, may_have_happened: bool = False
) -> RefusedError:
    """Return the error of a response code."""
    error = _BY_CODE.get(code, RefusedError)(code, remark, peer)
    error.may_have_happened = may_have_happened
    return error


def invalid(remark: str) -> RefusedError:
    """Return the refusal of a request with an illegal value."""
    return refusal(ResponseCode.INVALID_PARAMETER, remark)


def created_again(topic: str, peer: str = "") -> RefusedError:
    """Return the refusal of reads of a topic that was replaced by another one of its name."""
    remark = f"topic {topic!r} was deleted and created again"
    return refusal(ResponseCode.TOPIC_NOT_EXIST, remark, peer)


class TransportError(TernError):
    """Request without an answer."""

    fault = Fault.NETWORK


class Unreachable(TransportError):
    """Address where no peer answers; no request was sent."""

    retryable = True


class RequestTimedOut(TransportError):
    """Request whose answer did not arrive in time."""

    retryable = True
    may_have_happened = True


class ConnectionLost(TransportError):
    """Connection that broke before the answer arrived."""

    retryable = True
    may_have_happened = True


class CannotListen(TernError):
    """Listening address that is in use, or that belongs to another machine."""

    fault = Fault.CALLER


class StoreError(TernError):
    """Failure of the local disk, or of the files on it."""


class CorruptRecord(StoreError):
    """Bytes at `offset` that are no record; `reason` names the failed check."""

    def __init__(self, offset: PhysicalOffset, reason: str) -> None:
        super().__init__(f"corrupt record at physical offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class CorruptBody(CorruptRecord):
    """Intact record at `offset` whose compressed body cannot be read."""


class MessageDamaged(StoreError):
    """Message whose bytes in the log are damaged.

    Attributes:
        topic: Topic of the queue.
        queue_id: Number of the queue; -1 when the queue of the bytes is not known.
        offset: Queue offset of the message; its physical offset when the queue is not known.
        reason: Description of the damage.
    """

    def __init__(self, topic: str, queue_id: int, offset: int, reason: str) -> None:
        where = f"topic {topic!r} queue {queue_id}: message {offset}"
        if queue_id < 0:
            where = f"commit log offset {offset}"
        super().__init__(f"{where} is damaged: {reason}")
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.reason = reason


class RangeGone(StoreError):
    """Requested messages of a queue that are deleted.

    Attributes:
        topic: Topic of the queue.
        queue_id: Number of the queue.
        wanted_offset: Offset of the first requested message that is deleted.
        first_offset: Offset of the queue's oldest message.
    """

    def __init__(self, topic: str, queue_id: int, wanted_offset: int, first_offset: int) -> None:
        super().__init__(
            f"topic {topic!r} queue {queue_id}: messages from {wanted_offset} on are no longer "
            f"kept, the queue begins at {first_offset} now"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.wanted_offset = wanted_offset
        self.first_offset = first_offset


class StateDamaged(StoreError):
    """State file with damage in every generation."""


class StateUnreadable(StoreError):
    """State file that the operating system does not allow this process to read."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = error.strerror or str(error)
        self.reason = f"exists but cannot be read: {reason}"
        super().__init__(
            f"{path} {self.reason}. Neither an older file nor an empty one"
            " replaces it: make it readable for this user (owner and mode of the file and its"
            " folder), or check the disk, and start again"
        )
        self.path = path


class StoreFull(StoreError):
    """Disk without space for another file. Reads still work."""


class StoreLocked(StoreError):
    """Data directory that another process has locked."""


class StoreNotFound(StoreError):
    """Directory without a store."""


class StoreFailed(StoreError):
    """Store that is read-only after an I/O error, until it is opened again."""
