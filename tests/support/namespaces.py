"""Machines of their own on a network of their own, for faults that only a real network has.

    with private_network() as network:
        broker = network.add_machine("broker")
        ...  # run processes there: `broker.command("ternmq", "broker", …)`
        network.drop("producer", "broker")  # what the producer sends arrives no more
        network.heal()

Each machine is a network namespace with one address. A pair of virtual interfaces connects it with
a bridge, which has a namespace too, so that the rules of this machine's own firewall mean nothing
to it. This process has an address on the network as well, and reaches every machine.

What is dropped vanishes: no refusal tells anybody.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Final

import pytest

_NEEDED: Final = ("ip", "iptables")
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_HUB: Final = "hub"
_BRIDGE: Final = "bridge"
_FIRST_HOST: Final = 10


@dataclass(frozen=True, slots=True)
class Machine:
    """One namespace.

    Attributes:
        name: What the test calls it.
        namespace: What the system does.
        host: Its address.
    """

    name: str
    namespace: str
    host: str

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs `words` there. The process keeps its id."""
        return [_tool("ip"), "netns", "exec", self.namespace, *words]


@dataclass
class PrivateNetwork:
    """The machines, and what is dropped between them. Made by `private_network`."""

    prefix: str
    network: str
    machines: dict[str, Machine] = field(default_factory=dict[str, Machine])
    _rules: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])

    @property
    def own_host(self) -> str:
        """Address of this process there."""
        return f"{self.network}.1"

    def add_machine(self, name: str) -> Machine:
        """Switch a machine on. It is reached by every other, and reaches them."""
        number = _FIRST_HOST + len(self.machines)
        machine = Machine(name, f"{self.prefix}{number}", f"{self.network}.{number}")
        self.machines[name] = machine
        _run("ip", "netns", "add", machine.namespace)
        hub, port = f"{self.prefix}{_HUB}", f"port{number}"
        far = ("peer", "name", "wire", "netns", machine.namespace)
        _run("ip", "-n", hub, "link", "add", port, "type", "veth", *far)
        _run("ip", "-n", hub, "link", "set", port, "master", _BRIDGE, "up")
        inside = ("ip", "-n", machine.namespace)
        _run(*inside, "addr", "add", f"{machine.host}/24", "dev", "wire")
        _run(*inside, "link", "set", "wire", "up")
        _run(*inside, "link", "set", "lo", "up")
        return machine

    def drop(self, source: str, target: str) -> None:
        """Let nothing that `source` sends arrive at `target` any more. The other way stays."""
        machine, sender = self.machines[target], self.machines[source]
        rule = ["INPUT", "-s", sender.host, "-j", "DROP"]
        self._filter(machine, "-I", rule)
        self._rules.append((target, rule))

    def part(self, one: str, other: str) -> None:
        """Let nothing arrive between two machines any more."""
        self.drop(one, other)
        self.drop(other, one)

    def heal(self) -> None:
        """Let everything arrive again."""
        rules, self._rules = self._rules, []
        for target, rule in rules:
            self._filter(self.machines[target], "-D", rule)

    def _filter(self, machine: Machine, verb: str, rule: list[str]) -> None:
        _run(*machine.command(_tool("iptables"), "-w", verb, *rule))


@contextlib.contextmanager
def private_network() -> Generator[PrivateNetwork]:
    """Make a network without machines; skip the test where that cannot be.

    Leaving takes it and every machine away. Processes there must have ended before.
    """
    _skip_unless_possible()
    # 198.18.0.0/15 is set aside for testing networks: nobody's machines have such addresses.
    number = os.getpid() % 500
    network = PrivateNetwork(f"tmq{number}-", f"198.{18 + number // 250}.{number % 250}")
    own, hub = f"tmq{number}", f"{network.prefix}{_HUB}"
    with contextlib.ExitStack() as stack:
        _run("ip", "netns", "add", hub)
        stack.callback(_run, "ip", "netns", "del", hub)
        _run("ip", "-n", hub, "link", "add", _BRIDGE, "type", "bridge")
        _run("ip", "-n", hub, "link", "set", _BRIDGE, "up")
        _run("ip", "link", "add", own, "type", "veth", "peer", "name", "own", "netns", hub)
        # A namespace goes a moment after it was deleted, with what is in it; this is gone at once.
        stack.callback(_run, "ip", "link", "del", own)
        _run("ip", "-n", hub, "link", "set", "own", "master", _BRIDGE, "up")
        _run("ip", "addr", "add", f"{network.own_host}/24", "dev", own)
        _run("ip", "link", "set", own, "up")
        stack.callback(_take_away, network)
        yield network


def _take_away(network: PrivateNetwork) -> None:
    for machine in network.machines.values():
        _run("ip", "netns", "del", machine.namespace)


def _skip_unless_possible() -> None:
    missing = [name for name in _NEEDED if shutil.which(name, path=_PATH) is None]
    if os.name != "posix" or os.geteuid() != 0 or missing:
        pytest.skip(f"a network of its own needs root and {' and '.join(_NEEDED)}")
    space = f"tmq-probe-{os.getpid()}"  # several processes may look at once
    probe = [_tool("ip"), "netns", "exec", space, _tool("iptables"), "-w", "-L", "-n"]
    for words in ([_tool("ip"), "netns", "add", space], probe):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = done.stderr.strip()
            break
    else:
        reason = ""
    subprocess.run([_tool("ip"), "netns", "del", space], capture_output=True, check=False)
    if reason:
        pytest.skip(f"a network of its own cannot be made: {reason}")


def _tool(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None, f"{name} is here"
    return found


def _run(name: str, *words: str) -> None:
    command = [name if "/" in name else _tool(name), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
