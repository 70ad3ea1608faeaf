"""Every error that TernMQ raises on purpose.

* `TernError`
    * `UsageError`: the caller must change the call. Never retried.
        * `ConfigError`: a setting cannot work
        * `SettingsError`: all that is wrong with the settings of a process
        * `IllegalName`: a topic or group name breaks the rules
        * `IllegalMessage`: a message that no broker would take
        * `SendVetoed`: one of the producer's interceptors refused the message
        * `MissingPackage`: an optional package is not installed; the text says which extra has it
        * `ClosedError`: used before it was opened or after it was closed
    * `RefusedError`: a peer answered, and the answer is no. `code` says why; some are retryable.
        * `TopicNotFound`, `GroupNotFound`, `BrokerBusy`, `BrokerDraining`, `MessageRefused`,
          `PermissionRefused`, `InvalidParameter`, `MessageNotFound`, `ClientNotOnline`
        * `RangeLost`: messages that were to be read are not there, or no more
    * `TransportError`: no answer came.
        * `Unreachable` (retryable), and of it `BrokersUnreachable`, in
          `ternmq_client.admin.descriptions`
        * `RequestTimedOut` (retryable, may have happened)
        * `ConnectionLost` (retryable, may have happened)
    * `SendManyFailed`: some messages of many were not stored. `results` says which. It lives with
      what it holds, in `ternmq_model.message`.
    * `CannotListen`: a service's own address is taken, or is none of this machine.
    * `StoreError`: the local disk, or what lies on it.
        * `CorruptRecord`, and of it `CorruptBody`, for one whose compressed body cannot be read
        * `StoreFull`, `StoreLocked`, `StoreFailed`, `StoreNotFound`

Each answers three questions: whose fault (`fault`), may I retry (`retryable`), may it have
happened anyway (`may_have_happened`).
"""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from ternmq_model.offsets import PhysicalOffset
from ternmq_model.response_code import CALLERS_CODES, RETRYABLE_CODES, ResponseCode


class Fault(Enum):
    """The side that has to change something.

    Attributes:
        CALLER: The call is wrong as it stands: repeated, it fails again.
        BROKER: The service or its disk cannot do it now: it is busy, closing, full or broken.
        NETWORK: Nobody answered.
    """

    CALLER = "caller"
    BROKER = "broker"
    NETWORK = "network"


class TernError(Exception):
    """Base of every error this library raises on purpose."""

    fault: Fault = Fault.BROKER
    """The side that has to change something before the same call can succeed."""

    retryable: bool = False
    """The same call may succeed later, or at another broker."""

    may_have_happened: bool = False
    """The peer may have done what was asked: a retry may duplicate it."""


class UsageError(TernError):
    """The caller must change the call."""

    fault = Fault.CALLER


class ConfigError(UsageError):
    """A setting cannot work; names the setting, its value and the rule it breaks."""

    def __init__(self, setting: str, value: object, rule: str) -> None:
        super().__init__(f"{setting}={value!r}: {rule}")
        self.setting = setting
        self.value = value
        self.rule = rule


class SettingsError(UsageError):
    """All that is wrong with the settings of a process, found in one go.

    Attributes:
        problems: One line each: setting, value, the rule it breaks, and where it was given.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("the settings cannot work:" + "".join(f"\n  {line}" for line in problems))
        self.problems = tuple(problems)


class IllegalName(UsageError):
    """A topic or group name breaks the rules."""

    def __init__(self, kind: str, name: str, rule: str) -> None:
        super().__init__(f"{kind} {name!r}: {rule}")
        self.kind = kind
        self.name = name
        self.rule = rule


class IllegalMessage(UsageError):
    """A message that no broker would take; nothing was sent."""


class SendVetoed(UsageError):
    """An interceptor refused the message; nothing was sent. `__cause__` is what it raised."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(f"an interceptor refused the message: {reason!r}")


class MissingPackage(UsageError, ImportError):
    """The call needs a package that is not installed."""


class JobFailed(TernError):
    """A job of the pipeline ended with an error that is nobody's answer: what it had done stays."""


class ClosedError(UsageError):
    """The object was used before it was opened or after it was closed."""


class RefusedError(TernError):
    """A peer answered, and the answer is no.

    Attributes:
        code: RocketMQ's response code.
        remark: The peer's reason.
        peer: Broker name or address of who refused.
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
    """No broker has the topic, and none may create it."""


class GroupNotFound(RefusedError):
    """The broker knows no such group."""


class MessageNotFound(RefusedError):
    """Nothing lies where the id or offset points."""


class BrokerBusy(RefusedError):
    """The broker takes no more just now; nothing was stored."""


class BrokerDraining(RefusedError):
    """The broker takes no messages before it stops or hands over; it stored nothing this time.

    Producers send elsewhere, or wait for the length of a send, before they raise it. Only where an
    earlier attempt was left in doubt `may_have_happened` is True.
    """


class MessageRefused(RefusedError):
    """The broker found the message illegal; it was not stored."""


class PermissionRefused(RefusedError):
    """The topic, group or broker does not allow it."""


class ClientNotOnline(RefusedError):
    """The client that is meant has no Session with the broker."""


class InvalidParameter(RefusedError):
    """The request names a queue, offset or value that cannot be."""


class RangeLost(RefusedError):
    """Messages that were to be read are not in their queue: it begins later, or ends earlier.

    Attributes:
        topic: The queue's topic.
        broker_name: The queue's broker.
        queue_id: The queue's number there.
        wanted_offset: The first message that was wanted and is not there.
        first_offset: The first one that the queue keeps.
        end_offset: Behind the last one that it has; None = not asked, since it begins too late.
        topic_remark: Why the topic that was to be read is not there; "" = it is there.
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
    """Return the error class that stands for `code`, ready to be raised."""
    error = _BY_CODE.get(code, RefusedError)(code, remark, peer)
    error.may_have_happened = may_have_happened
    return error


def created_again(topic: str, peer: str = "") -> RefusedError:
    """Return what who reads a topic is told when its name is another topic's by now."""
    remark = f"topic {topic!r} was deleted and created again"
    return refusal(ResponseCode.TOPIC_NOT_EXIST, remark, peer)


class TransportError(TernError):
    """No answer came."""

    fault = Fault.NETWORK


class Unreachable(TransportError):
    """Nobody answers at the address; nothing was done."""

    retryable = True


class RequestTimedOut(TransportError):
    """The answer did not come in time."""

    retryable = True
    may_have_happened = True


class ConnectionLost(TransportError):
    """The connection broke before the answer."""

    retryable = True
    may_have_happened = True


class CannotListen(TernError):
    """The address to listen on is taken, or is none of this machine."""

    fault = Fault.CALLER


class StoreError(TernError):
    """The local disk, or what lies on it."""


class CorruptRecord(StoreError):
    """The bytes at `offset` are not a record; `reason` names the check that failed."""

    def __init__(self, offset: PhysicalOffset, reason: str) -> None:
        super().__init__(f"corrupt record at physical offset {offset}: {reason}")
        self.offset = offset
        self.reason = reason


class CorruptBody(CorruptRecord):
    """The record at `offset` is whole, but its compressed body cannot be read."""


class MessageDamaged(StoreError):
    """The bytes at a message's place in the log are not that message, or are known to be bad.

    Attributes:
        topic: The queue's.
        queue_id: Its number; -1 when it is not known whose the bytes were.
        offset: The message's place in it; then the place in the log.
        reason: What is wrong.
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
    """Messages of a queue that are to be read are no longer kept.

    Attributes:
        topic: The queue's.
        queue_id: Its number.
        wanted_offset: The first one that is gone.
        first_offset: The first one that the queue still has.
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
    """A state file is there in some generations, and the bytes of all of them are wrong."""


class StateUnreadable(StoreError):
    """A state file is there, and the system does not let it be read: what it holds is unknown."""

    def __init__(self, path: Path, error: OSError) -> None:
        reason = error.strerror or str(error)
        self.reason = f"is there and cannot be read: {reason}"
        super().__init__(
            f"{path} {self.reason}. Neither an older file nor an empty one"
            " stands for it: let this user read it (its owner and mode, and those of its folder),"
            " or see to the disk, and start again"
        )
        self.path = path


class StoreFull(StoreError):
    """No space for another file. Reads still work."""


class StoreLocked(StoreError):
    """Another process holds the data directory."""


class StoreNotFound(StoreError):
    """There is no store where one was looked for."""


class StoreFailed(StoreError):
    """An earlier I/O error made the store read-only until it is opened anew."""
