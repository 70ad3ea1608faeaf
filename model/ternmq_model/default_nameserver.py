"""Address of the NameServer for programs that name none, and the variable that replaces it."""

from typing import Final

DEFAULT_NAMESERVER: Final = "127.0.0.1:9876"

NAMESERVER_VARIABLE: Final = "TERNMQ_NAMESERVER"
"""Variable with the NameServers of programs that name none, so that one image runs everywhere."""
