"""Shares by machine room, so that messages do not cross slow lines. Pure."""

from collections.abc import Callable, Iterable, Sequence

from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue


def room_of_broker(broker_name: str) -> str:
    """Return the room in `<room>@<name>`, else the text before the first `-`."""
    room, at_sign, _ = broker_name.partition("@")
    return room if at_sign else broker_name.split("-", 1)[0]


def room_of_member(client_id: str) -> str:
    """Return the text before the first `-` of a client id, which begins with the host's name."""
    return client_id.split("-", 1)[0]


class AllocateByMachineRoom:
    """Strategy of equal shares in the queues of some machine rooms.

    A room is the part of a broker's name before `@`, or before the first `-` without an `@`. No
    member gets queues of other rooms: other groups, or members with other rooms, must consume them.
    The consumer logs these queues.

    Args:
        rooms: Machine rooms, at least one. All members must have equal ones.

    Raises:
        ConfigError: There is no room, or a room is empty or has an `@`.

    Source:
        RocketMQ `AllocateMessageQueueByMachineRoom`, which knows no room in a name without `@`.
    """

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset([rooms] if isinstance(rooms, str) else rooms)
        if not self._rooms:
            raise ConfigError("consumer.allocate.rooms", (), "must name a room")
        for room in self._rooms:
            if not room or "@" in room:
                raise ConfigError("consumer.allocate.rooms", room, "must not be empty or have an @")

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> Sequence[MessageQueue]:
        """Return the share of `member`: neighbouring queues, then one of the remainder."""
        if member not in members:
            return []
        wanted = [queue for queue in queues if self.covers(queue)]
        place, count = members.index(member), len(members)
        size, left_over = divmod(len(wanted), count)
        share = wanted[place * size : (place + 1) * size]
        if place < left_over:
            share.append(wanted[place + size * count])
        return share

    def covers(self, queue: MessageQueue) -> bool:
        """Return whether `queue` is in one of the rooms."""
        return room_of_broker(queue.broker_name) in self._rooms


class AllocateNearby:
    """Strategy that gives queues to members of their room; of a room without members, to all.

    Args:
        inner: Strategy of the shares in one room, and in a room without members.
        room_of_broker: Function that returns a broker's room by its name.
        room_of_member: Function that returns a member's room by its client id.

    Source:
        RocketMQ `AllocateMachineRoomNearby`. RocketMQ refuses an empty room name; here it is a room
        like any other.
    """

    def __init__(
        self,
        inner: AllocationStrategy,
        *,
        room_of_broker: Callable[[str], str] = room_of_broker,
        room_of_member: Callable[[str], str] = room_of_member,
    ) -> None:
        self._inner = inner
        self._room_of_broker = room_of_broker
        self._room_of_member = room_of_member

    def __call__(
        self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
    ) -> Sequence[MessageQueue]:
        """Return the share of `member`: in its own room, then in each room without members."""
        if member not in members:
            return []
        queues_by_room: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_by_room.setdefault(self._room_of_broker(queue.broker_name), []).append(queue)
        members_by_room: dict[str, list[str]] = {}
        for each in members:
            members_by_room.setdefault(self._room_of_member(each), []).append(each)
        own = self._room_of_member(member)
        share: list[MessageQueue] = []
        if own in queues_by_room:
            share += self._inner(queues_by_room[own], members_by_room[own], member)
        for room in sorted(queues_by_room.keys() - members_by_room.keys()):
            share += self._inner(queues_by_room[room], members, member)
        return share
