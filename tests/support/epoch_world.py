"""What `epoch_model` is about: members of one broker name, their logs and links, as values."""

from typing import Final, NamedTuple

from ternmq_broker.state import epochs as rules
from ternmq_broker.state.epochs import Epochs, MemberLog
from ternmq_model.offsets import PhysicalOffset

DOWN, MASTER, SLAVE, WAITS = "down", "master", "slave", "waits"
NOBODY: Final = -1
NO_STREAM: Final = -1

Record = tuple[int, int]
Records = tuple[Record, ...]


class Setup(NamedTuple):
    """What does not change in a run."""

    members: int = 2
    needed: int = 1
    """Slaves that must have what is acknowledged; 0 = none."""
    is_flush_sync: bool = True
    nameservers: int = 1


class Budget(NamedTuple):
    """How often each kind of thing may still happen."""

    appends: int = 2
    crashes: int = 2
    stops: int = 0
    cuts: int = 1
    promotions: int = 1
    forces: int = 0
    destroyed: int = 0
    strangers: int = 0
    """Registrations of members that there are not, with a higher epoch."""


class Member(NamedTuple):
    """One member; member 0 is configured as master."""

    log: Records = ()
    flushed: int = 0
    epochs: Epochs = ()
    highest: int = 0
    is_master: bool = False
    was_clean: bool = True
    store: int = 0
    """Whose log it is; 0 = nobody's."""
    cut: int = NOBODY
    """What it has noted to cut its log to."""
    is_trusted: bool = True
    """It has not lost anything of `safe` that it once acknowledged."""
    # From here on: gone when it ends.
    role: str = DOWN
    is_fenced: bool = False
    follows: int = NOBODY
    acks: tuple[int, ...] = ()
    """Of a master: what each member has acknowledged."""

    @property
    def as_log(self) -> MemberLog:
        """Return what it says of its log."""
        return MemberLog(
            self.epochs,
            PhysicalOffset(0),
            PhysicalOffset(len(self.log)),
            str(self.store or ""),
            self.highest,
        )

    @property
    def known(self) -> int:
        """The highest epoch that it knows of."""
        return max(self.highest, rules.newest(self.epochs))

    @property
    def is_up(self) -> bool:
        """It runs."""
        return self.role != DOWN


class World(NamedTuple):
    """Everything, at one moment."""

    setup: Setup
    budget: Budget
    members: tuple[Member, ...]
    cut_links: frozenset[tuple[int, int]] = frozenset()
    """Pairs that do not reach each other; the NameServers are members -1, -2, …"""
    entries: tuple[int, ...] = (0,)
    """The highest epoch that each NameServer knows; 0 = none."""
    serial: int = 0
    top: tuple[int, int, int] = (0, 0, 0)
    """The highest epoch that ever began, whose it is, and of which store."""
    safe: Records = ()
    is_sure: bool = True
    """Nobody did what may lose messages."""
    strange: int = 0
    """The highest epoch that a stranger registered; nobody began it."""
    fault: str = ""

    def reach(self, one: int, other: int) -> bool:
        """Tell whether two can talk."""
        return (min(one, other), max(one, other)) not in self.cut_links

    def put(self, number: int, member: Member) -> "World":
        """Return it with another member of that number."""
        return self._replace(members=(*self.members[:number], member, *self.members[number + 1 :]))

    def spend(self, kind: str) -> "World":
        """Return it with less of a budget."""
        left = getattr(self.budget, kind) - 1
        return self._replace(budget=self.budget._replace(**{kind: left}))


def first_world(setup: Setup, budget: Budget) -> World:
    """Return a world in which nothing has started."""
    members = tuple(Member(is_master=number == 0) for number in range(setup.members))
    return World(setup, budget, members, entries=(0,) * setup.nameservers)


def reign_of(world: World, number: int) -> tuple[int, int, int]:
    """Return the last reign of a member, as `World.top` tells it."""
    member = world.members[number]
    return rules.newest(member.epochs) if member.is_master else 0, number, member.store


def with_ack(acks: tuple[int, ...], number: int, value: int) -> tuple[int, ...]:
    """Return a master's acknowledgements with another one of `number`."""
    return (*acks[:number], value, *acks[number + 1 :])


def common_length(one: Records, other: Records) -> int:
    """Return how many records two logs begin with."""
    pairs = zip(one, other, strict=False)
    return next(
        (at for at, (mine, its) in enumerate(pairs) if mine != its), min(len(one), len(other))
    )


def after_cut(member: Member) -> Member:
    """Return a member after it did the cut that it noted, if there is one."""
    if member.cut == NOBODY:
        return member
    kept = min(member.cut, len(member.log))
    return member._replace(
        log=member.log[:kept],
        flushed=kept,
        epochs=rules.cut_to(member.epochs, PhysicalOffset(kept)),
        cut=NOBODY,
    )
