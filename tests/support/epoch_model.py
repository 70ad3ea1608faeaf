"""Members of one broker name, reduced to what epochs and cuts are about: a state and its steps.

A world is a value: members with their logs (a record is its epoch and a serial number), links,
NameServers, and what is left of the budgets that keep the number of worlds finite. `steps` gives
every world that can come next; each decision in it is the product's own function. What a world must
not be is said by `faults`, and `settle` lets everything heal.

Attributes of a world's history: `safe` is what was acknowledged with all the copies that were
asked for, by masters of the newest epoch; it is emptied when somebody does what the operations
manual says loses messages (a promotion without enough slaves asked, or against the advice).

Strangers register with NameServers, each time an epoch up to 10^9 above the highest.
"""

from collections.abc import Iterator

from ternmq_broker.replication.role import start_policy
from ternmq_broker.replication.role.start_policy import StartRole
from ternmq_broker.state import epochs as rules
from ternmq_model.epochs import EPOCH_STEP_MAX, doubt_of
from ternmq_model.offsets import PhysicalOffset
from tests.support.epoch_world import (
    DOWN,
    MASTER,
    NO_STREAM,
    NOBODY,
    SLAVE,
    WAITS,
    Budget,
    Member,
    World,
    after_cut,
    common_length,
    reign_of,
    with_ack,
)

Step = tuple[str, World]


def steps(world: World) -> Iterator[Step]:
    """Yield everything that can happen next."""
    for number, member in enumerate(world.members):
        if member.role == DOWN:
            yield f"start {number}", start(world, number)
            continue
        if member.role == WAITS:
            again = start(world, number)
            if again.members[number].role != WAITS:
                yield f"retry {number}", again
            if world.budget.forces:
                yield f"force {number}", start(world.spend("forces"), number, is_forced=True)
        yield from _trouble(world, number)
        if member.role == MASTER:
            yield from _master_steps(world, number)
        elif member.role == SLAVE:
            yield from _slave_steps(world, number)
    yield from _link_steps(world)
    yield from _stranger_steps(world)


def _stranger_steps(world: World) -> Iterator[Step]:
    if not world.budget.strangers:
        return
    for index, entry in enumerate(world.entries):
        for step in (1, EPOCH_STEP_MAX):
            lied = world.spend("strangers")._replace(strange=max(world.strange, entry + step))
            yield f"lie {index} {step}", _with_entry(lied, index, entry + step)


def _with_entry(world: World, index: int, entry: int) -> World:
    return world._replace(entries=(*world.entries[:index], entry, *world.entries[index + 1 :]))


def _trouble(world: World, number: int) -> Iterator[Step]:
    member = world.members[number]
    if world.budget.crashes:
        spent = world.spend("crashes")
        yield f"kill {number}", _end(spent, number, _down(member, was_clean=False))
        if member.flushed < len(member.log):
            lost = _down(member, was_clean=False)._replace(
                log=member.log[: member.flushed],
                is_trusted=member.is_trusted and world.setup.is_flush_sync,
            )
            yield f"lose power {number}", _end(spent, number, lost)
    if world.budget.stops and member.role != WAITS:
        flushed = _down(member, was_clean=True)._replace(flushed=len(member.log))
        yield f"stop {number}", _end(world.spend("stops"), number, flushed)
    if world.budget.destroyed:
        yield f"destroy {number}", _destroy(world.spend("destroyed"), number)


def _destroy(world: World, number: int) -> World:
    """Return the world after the disk of a member was lost, and an empty one took its place."""
    world = _end(world, number, Member(is_master=number == 0, is_trusted=False))
    known = max([*world.entries, *(member.known for member in world.members)])
    # What nobody else ever heard of never was.
    if known == world.top[0]:
        return world
    reigns = (reign_of(world, other) for other in range(world.setup.members))
    top = next((reign for reign in reigns if reign[0] == known), (known, NOBODY, NOBODY))
    return world._replace(top=top, safe=(), is_sure=False)


def _down(member: Member, *, was_clean: bool) -> Member:
    # Who waited for leave to serve changed nothing, so it is as clean as it was.
    clean = member.was_clean if member.role == WAITS else was_clean
    return member._replace(role=DOWN, was_clean=clean, is_fenced=False, follows=NOBODY, acks=())


def _end(world: World, number: int, ended: Member) -> World:
    """Return the world after a member ended: whoever talked to it does not any more."""
    world = world.put(number, ended)
    for other, member in enumerate(world.members):
        if member.follows == number:
            member = member._replace(follows=NOBODY)
        if member.acks and member.acks[number] != NO_STREAM:
            member = member._replace(acks=with_ack(member.acks, number, NO_STREAM))
        if member is not world.members[other]:
            world = world.put(other, member)
    return world


def _answers(world: World, number: int) -> list[start_policy.Answer]:
    return [*_nameservers_answers(world, number), *_members_answers(world, number)]


def _nameservers_answers(world: World, number: int) -> list[start_policy.NameServerAnswer]:
    return [
        start_policy.NameServerAnswer(entry or None)
        for index, entry in enumerate(world.entries)
        if world.reach(number, -1 - index)
    ]


def _members_answers(world: World, number: int) -> list[start_policy.MemberAnswer]:
    """Return the answers of members that are believed, as `EpochPoll` has it."""
    told = _nameservers_answers(world, number)
    own = world.members[number]
    known = max([own.known, *(each.highest or 0 for each in told)])
    answers: list[start_policy.MemberAnswer] = []
    for other, member in enumerate(world.members):
        if other == number or not member.is_up or not world.reach(number, other):
            continue
        epoch = rules.newest_reached(member.epochs, PhysicalOffset(len(member.log)))
        serves = member.role == MASTER and not member.is_fenced and epoch == member.known
        is_sure = not told and serves and member.store == own.store
        if not (doubt_of(member.known) if is_sure else doubt_of(member.known, known)):
            end = PhysicalOffset(len(member.log))
            answers.append(start_policy.MemberAnswer(member.known, epoch, end))
    return answers


def start(world: World, number: int, *, is_forced: bool = False) -> World:
    """Return the world after a member was started, or has asked again."""
    member = after_cut(world.members[number])
    setup = world.setup
    answers = _answers(world, number)
    own = start_policy.OwnState(
        broker_id=number,
        is_master=member.is_master,
        is_replicated=True,
        is_empty=not member.log,
        was_clean=member.was_clean,
        epochs=member.epochs,
        log_end=PhysicalOffset(len(member.log)),
        may_lack_confirmed=not (setup.is_flush_sync or member.was_clean) and setup.needed > 0,
        highest=member.highest,
    )
    decision = start_policy.decide_start(own, answers, is_forced=is_forced)
    heard = max([member.known, *(each.highest or 0 for each in answers)])
    if decision.start is StartRole.WAIT:
        return world.put(number, member._replace(role=WAITS))
    if decision.start is StartRole.SLAVE:
        slave = member._replace(role=SLAVE, is_master=False, was_clean=False, highest=heard)
        return world.put(number, slave)
    if decision.begins is None:
        return world.put(number, _as_master(world, member))
    is_safe = member.is_trusted or _asked_enough(world, number)
    return _begin(world, number, member, decision.begins, is_safe=is_safe and not is_forced)


def _as_master(world: World, member: Member) -> Member:
    return member._replace(
        role=MASTER,
        is_master=True,
        was_clean=False,
        is_fenced=False,
        follows=NOBODY,
        acks=(NO_STREAM,) * world.setup.members,
    )


def _begin(world: World, number: int, member: Member, epoch: int, *, is_safe: bool) -> World:
    """Return the world after a member began a reign."""
    member = _as_master(world, member)._replace(
        epochs=rules.begin(member.epochs, epoch, PhysicalOffset(len(member.log))),
        highest=max(member.highest, epoch),
        store=member.store or 1 + world.serial,
        flushed=len(member.log),
    )
    world = world._replace(serial=world.serial + 1).put(number, member)
    reign = reign_of(world, number)
    if epoch > world.top[0]:
        is_sure = world.is_sure and is_safe
        return world._replace(top=reign, safe=world.safe if is_safe else (), is_sure=is_sure)
    if epoch < world.top[0]:
        return world
    if world.top[2] == member.store and world.top[1] != number:
        return world._replace(fault=f"epoch {epoch} is begun by {number} and {world.top[1]}")
    # Its disk was lost, and who might have told it of the first store cannot be asked.
    return world._replace(top=reign, safe=(), is_sure=False)


def _asked_enough(world: World, number: int) -> bool:
    """Tell whether those that `number` reaches must have all that is safe."""
    asked = sum(
        member.is_trusted
        for other, member in enumerate(world.members)
        if (other == number or member.role == SLAVE)
        and other != world.top[1]
        and world.reach(number, other)
    )
    return asked > world.setup.members - 1 - world.setup.needed


def _master_steps(world: World, number: int) -> Iterator[Step]:
    member = world.members[number]
    if member.is_fenced:
        slave = _down(member, was_clean=False)._replace(
            role=SLAVE, is_master=False, flushed=len(member.log)
        )
        yield f"become slave {number}", _end(world, number, slave)
        return
    if world.budget.appends:
        record = (rules.newest(member.epochs), world.serial)
        appended = member._replace(log=(*member.log, record))
        world_after = world.spend("appends")._replace(serial=world.serial + 1)
        yield f"append {number}", acknowledge(world_after.put(number, appended), number)
    if member.flushed < len(member.log):
        flushed = member._replace(flushed=len(member.log))
        yield f"flush {number}", acknowledge(world.put(number, flushed), number)
    for index, entry in enumerate(world.entries):
        if not world.reach(number, -1 - index):
            continue
        mine = rules.newest(member.epochs)
        if mine > entry and not doubt_of(mine, entry):
            yield f"register {number}", _with_entry(world, index, mine)
        elif mine < entry:
            yield f"refused {number}", world.put(number, _fence(member, entry))


def _fence(member: Member, highest: int) -> Member:
    return member._replace(highest=max(member.highest, highest), is_fenced=True)


def acknowledge(world: World, number: int) -> World:
    """Return the world after a master acknowledged all that it can."""
    member = world.members[number]
    needed = world.setup.needed
    held = sorted((ack for ack in member.acks if ack != NO_STREAM), reverse=True)
    if member.is_fenced or not needed or len(held) < needed:
        return world
    own = member.flushed if world.setup.is_flush_sync else len(member.log)
    to = min(own, held[needed - 1])
    if to <= member.epochs[-1].start:
        return world  # nothing of its own
    confirmed = member.log[:to]
    if world.top != reign_of(world, number):
        # It was replaced and has not heard of it. One that needs everybody confirms nothing more.
        is_new = confirmed != world.safe[:to] and needed == world.setup.members - 1
        fault = "a replaced master confirms" if is_new and world.is_sure else ""
        return world._replace(fault=fault)
    common = min(to, len(world.safe))
    if confirmed[:common] != world.safe[:common]:
        return world._replace(fault="another record is acknowledged at an offset")
    return world._replace(safe=confirmed) if to > len(world.safe) else world


def _slave_steps(world: World, number: int) -> Iterator[Step]:
    member = world.members[number]
    if member.cut != NOBODY:
        yield f"cut {number}", world.put(number, after_cut(member))
        return
    if member.follows == NOBODY:
        for other, master in enumerate(world.members):
            if master.role == MASTER and not master.is_fenced and world.reach(number, other):
                after = connect(world, number, other)
                if after != world:
                    yield f"connect {number} to {other}", after
    else:
        yield from _stream_steps(world, number, member.follows)
    for index, entry in enumerate(world.entries):
        # What was begun they hear when they connect, too; what strangers tell, only here.
        is_news = entry > world.top[0] or doubt_of(world.top[0], member.known)
        if is_news and entry > member.known and world.reach(number, -1 - index):
            yield f"hear {number}", _hear(world, number, entry)
    if world.budget.promotions:
        yield from _promotions(world.spend("promotions"), number)


def _hear(world: World, number: int, epoch: int) -> World:
    """Return the world after a slave heard of an epoch: it follows no master below it."""
    member = world.members[number]._replace(highest=epoch)
    if member.follows != NOBODY:
        master = world.members[member.follows]
        acks = with_ack(master.acks, number, NO_STREAM)
        world = world.put(member.follows, master._replace(acks=acks))
    return world.put(number, member._replace(follows=NOBODY))


def connect(world: World, number: int, other: int) -> World:
    """Return the world after a slave said hello to a master."""
    slave, master = world.members[number], world.members[other]
    if doubt_of(rules.newest(master.epochs), slave.known):
        return world
    mine, theirs = slave.as_log, master.as_log
    common = None
    if rules.why_not(theirs, mine) is None:
        points = rules.common_points(theirs, mine)
        common = next((at for at in points if slave.log[:at] == master.log[:at]), None)
        if points and common != points[0]:
            return world._replace(fault=f"a checksum was needed: {mine} {theirs}")
    decision = rules.follow_decision(theirs, mine, common)
    match decision:
        case rules.MasterDeposed():
            confirmed = _confirmed(world, other, claimed_by=number)
            if confirmed <= rules.newest(master.epochs):
                return world
            return world.put(other, _fence(master, confirmed))
        case rules.FollowRefused():
            if slave.store == master.store:
                return world._replace(fault=f"a member is refused: {decision.reason}")
            return world
        case rules.FollowFrom():
            assert decision.start == mine.end, "a slave cuts its log before it follows"
            following = slave._replace(
                epochs=master.epochs,
                highest=max(slave.highest, master.known),
                store=master.store,
                follows=other,
            )
            acks = with_ack(master.acks, number, 0)
            return world.put(number, following).put(other, master._replace(acks=acks))
        case rules.TruncateTo() | rules.StartEmptyLog():
            keep_to = decision.keep_to if isinstance(decision, rules.TruncateTo) else decision.start
            noted = slave._replace(cut=int(keep_to), highest=max(slave.highest, master.known))
            safe = common_length(slave.log, world.safe)
            # A power loss may have taken acknowledged bytes from one that flushes late and was not
            # told: another member has them then.
            is_right = world.setup.is_flush_sync or world.top == reign_of(world, other)
            if keep_to < safe and is_right:
                fault = f"{number} is to cut what was acknowledged up to {safe}, from {keep_to}"
                return world._replace(fault=fault)
            return world.put(number, noted)


def _confirmed(world: World, number: int, *, claimed_by: int) -> int:
    """Return the highest epoch that a master is told by others than the slave that claims one."""
    told = [each.highest or 0 for each in _nameservers_answers(world, number)]
    own = world.members[number]
    away = own._replace(role=DOWN)
    members = tuple(
        away if other == claimed_by or each.store not in (0, own.store) else each
        for other, each in enumerate(world.members)
    )
    answers = _members_answers(world._replace(members=members), number)
    return max([*told, *(each.highest for each in answers)], default=0)


def _stream_steps(world: World, number: int, other: int) -> Iterator[Step]:
    if not world.reach(number, other):
        parted = world.members[number]._replace(follows=NOBODY)
        acks = with_ack(world.members[other].acks, number, NO_STREAM)
        master = world.members[other]._replace(acks=acks)
        yield f"{number} loses {other}", world.put(number, parted).put(other, master)
        return
    member, master = world.members[number], world.members[other]
    have = len(member.log)
    if have < len(master.log) and not master.is_fenced:
        longer = member._replace(log=master.log[: have + 1])
        yield f"replicate {number}", world.put(number, longer)
    if have > master.acks[number] or member.flushed < have:
        sure = member._replace(flushed=have if world.setup.is_flush_sync else member.flushed)
        told = master._replace(acks=with_ack(master.acks, number, have))
        after = acknowledge(world.put(number, sure).put(other, told), other)
        if world.top[1] == other and have >= len(after.safe):
            after = after.put(number, after.members[number]._replace(is_trusted=True))
        if after != world:
            yield f"ack {number}", after


def _promotions(world: World, number: int) -> Iterator[Step]:
    """Yield what a promotion by hand does, if the product advises it; nobody forces it here."""
    member = world.members[number]
    others = _members_answers(world, number)
    if start_policy.why_not_promote(member.as_log, others) or any(
        each.role == MASTER and world.reach(number, other)
        for other, each in enumerate(world.members)
    ):
        return
    answers = _answers(world, number)
    highest = max([member.known, *(each.highest or 0 for each in answers)])
    is_safe = _asked_enough(world, number)
    promoted = rules.number_of_promotion(highest, number)
    world = _end(world, number, member._replace(follows=NOBODY))
    after = _begin(world, number, world.members[number], promoted, is_safe=is_safe)
    yield f"promote {number}", after


def _link_steps(world: World) -> Iterator[Step]:
    members = range(world.setup.members)
    pairs = [
        (min(one, other), max(one, other))
        for one in members
        for other in (*range(one), *(-1 - index for index in range(world.setup.nameservers)))
    ]
    for pair in pairs:
        if pair in world.cut_links:
            yield f"heal {pair}", world._replace(cut_links=world.cut_links - {pair})
        elif world.budget.cuts:
            parted = world.spend("cuts")
            yield f"part {pair}", parted._replace(cut_links=world.cut_links | {pair})


def faults(world: World) -> str:
    """Return what is wrong with a world, "" for nothing."""
    if world.fault:
        return world.fault
    for number, member in enumerate(world.members):
        reign = reign_of(world, number)
        if member.role == MASTER:
            if not member.is_fenced and member.known > reign[0]:
                return f"{number} knows of epoch {member.known} and goes on with {reign[0]}"
            if reign == world.top and member.log[: len(world.safe)] != world.safe:
                return f"master {number} has not got what was acknowledged"
            if reign == world.top and member.is_fenced and member.highest > world.strange:
                return f"master {number} of the highest epoch {reign[0]} is fenced"
        if member.role == SLAVE and member.follows != NOBODY:
            master = world.members[member.follows]
            if member.log != master.log[: len(member.log)]:
                return f"{number} follows {member.follows} and has other records"
        if member.cut != NOBODY and reign == world.top and member.is_master:
            return f"the master of the highest epoch, {number}, is to cut its log"
    return ""


def settle(world: World) -> World:
    """Return the world after all is healed, started, and nothing is left to do.

    When nobody is a master, the slave with the best log is promoted.
    """
    world = world._replace(cut_links=frozenset(), budget=Budget(0, 0, 0, 0, 0, 0, 0, 0))
    for _ in range(400):
        if faults(world):
            return world
        following = next(steps(world), None)
        if following is not None:
            world = following[1]
            continue
        if any(member.role == MASTER for member in world.members):
            return world
        spent = world._replace(budget=world.budget._replace(promotions=1))
        promoted = next(
            (after for label, after in steps(spent) if label.startswith("promote")), None
        )
        if promoted is None:
            return world
        world = promoted._replace(budget=world.budget)
    return world._replace(fault="it does not settle")


def unsettled(world: World) -> str:
    """Return what is wrong with a world that has settled, "" for nothing."""
    if fault := faults(world):
        return fault
    masters = [number for number, member in enumerate(world.members) if member.role == MASTER]
    if not any(member.log for member in world.members) and not masters:
        return ""  # nothing was ever stored, or nothing is left
    if len({member.store for member in world.members} - {0}) > 1:
        return ""  # a disk was lost that nobody was asked about: who is right is said by hand
    if not masters and world.strange and not world.members[world.top[1]].log:
        return ""  # a stranger deposed a master whose log holds nothing: another one is forced
    if len(masters) != 1:
        return f"masters at the end: {masters}"
    master = world.members[masters[0]]
    if reign_of(world, masters[0]) != world.top:
        return f"master {masters[0]} is not that of the highest epoch"
    for number, member in enumerate(world.members):
        if member.store == master.store and member.log != master.log:
            return f"{number} has {member.log}, master {masters[0]} has {master.log}"
    return ""
