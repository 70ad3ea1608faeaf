"""Grants: what the table allows or denies to a user. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from ternmq_model.errors import ConfigError, IllegalName
from ternmq_model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_group, check_topic
from ternmq_model.permission import Action, ResourceKind
from ternmq_security.access.user import ANONYMOUS, check_user_name


class Effect(StrEnum):
    """Effect of a grant; a denial wins over every allowance."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """Resources that a grant is about.

    Attributes:
        kind: Kind of the resources; None = every resource, the cluster included.
        name: Name, or the prefix of names; empty for the cluster and for every name.
        is_prefix: True when `name` is a prefix.
    """

    kind: ResourceKind | None
    name: str = ""
    is_prefix: bool = False

    @staticmethod
    def parse(text: str) -> "ResourcePattern":
        """Return the pattern of `cluster`, `topic:NAME`, `topic:PREFIX*`, `group:…` or `*`.

        Raises:
            ConfigError: The text is no pattern; the text has the rule.
        """
        if text == "*":
            return ResourcePattern(None)
        if text == ResourceKind.CLUSTER:
            return ResourcePattern(ResourceKind.CLUSTER)
        kind, colon, name = text.partition(":")
        if not colon or kind not in (ResourceKind.TOPIC, ResourceKind.GROUP):
            rule = "must be cluster, topic:NAME, topic:PREFIX*, group:NAME, group:PREFIX* or *"
            raise ConfigError("resource", text, rule)
        if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            raise ConfigError("resource", text, "belongs to its group: use group:NAME")
        is_prefix = name.endswith("*")
        name = name.removesuffix("*")
        if name or not is_prefix:
            try:
                (check_topic if kind == ResourceKind.TOPIC else check_group)(name)
            except IllegalName as error:
                raise ConfigError("resource", text, error.rule) from None
        return ResourcePattern(ResourceKind(kind), name, is_prefix)

    def __str__(self) -> str:
        """Return the text that `parse` reads."""
        if self.kind is None:
            return "*"
        if self.kind is ResourceKind.CLUSTER:
            return self.kind.value
        return f"{self.kind}:{self.name}{'*' if self.is_prefix else ''}"


@dataclass(frozen=True, slots=True)
class Grant:
    """Allowance or denial of an action on resources to a user.

    Raises:
        ConfigError: `replicate` on another resource than `cluster` or `*`.
        IllegalName: The name of the user breaks the rules.
    """

    user: str
    effect: Effect
    action: Action
    pattern: ResourcePattern

    def __post_init__(self) -> None:
        if self.user != ANONYMOUS:
            check_user_name(self.user)
        kind = self.pattern.kind
        if self.action is Action.REPLICATE and kind not in (None, ResourceKind.CLUSTER):
            raise ConfigError("resource", str(self.pattern), "replicate needs cluster or *")

    def __str__(self) -> str:
        """Return the grant in one line."""
        return f"{self.user} {self.effect} {self.action} {self.pattern}"
