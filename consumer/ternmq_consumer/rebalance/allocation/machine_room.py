"""Shares by machine room, so that messages cross no slow line. Pure."""

from collections.abc import Callable, Iterable, Sequence

from ternmq_consumer.rebalance.allocation.strategy import AllocationStrategy
from ternmq_model.errors import ConfigError
from ternmq_model.queue import MessageQueue


def room_of_broker(broker_name: str) -> str:
    """Return the room in `<room>@<name>`, else what stands before the first `-`."""
    room, at_sign, _ = broker_name.partition("@")
    return room if at_sign else broker_name.split("-", 1)[0]


def room_of_member(client_id: str) -> str:
    """Return what stands before the first `-` of a client id, which begins with its host's name."""
    return client_id.split("-", 1)[0]


class AllocateByMachineRoom:
    """Shares out the queues of some machine rooms alone, equally.

    A room is the part before `@` of a broker's name, or before the first `-` where there is no `@`.
    Queues of other rooms nobody gets: other groups, or members configured otherwise, have to see to
    them. The consumer logs which they are.

    Args:
        rooms: Whose queues are shared out; at least one. All members must name the same.

    Raises:
        ConfigError: No room, or one that is empty or has an `@`.

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
        """Return the share of `member`: neighbours, then one that is left over."""
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
    """Gives queues to members of their own room, and those of a room without members to all.

    Args:
        inner: Shares out the queues of one room among its members, or of a deserted one among all.
        room_of_broker: Tells a broker's room by its name.
        room_of_member: Tells a member's room by its client id, which begins with the host's name.

    Source:
        RocketMQ `AllocateMachineRoomNearby`; which refuses to work where a room is empty. Here that
        is a room like any other.
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
        """Return the share of `member`: of its own room first, then of each deserted one."""
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
