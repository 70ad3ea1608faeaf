"""Rules by which subscriptions filter a read of the store. Pure.

Source: RocketMQ `PullMessageProcessor`, `ExpressionMessageFilter`,
`ExpressionForRetryMessageFilter`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ternmq_broker.state.clients import ClientTable
from ternmq_broker.state.filters import BLOOM, FilterTable
from ternmq_model.errors import IllegalName, UsageError, invalid, refusal
from ternmq_model.names import RETRY_PREFIX
from ternmq_model.properties import RETRY_TOPIC, decode_visible
from ternmq_model.response_code import ResponseCode
from ternmq_model.sql92 import Condition
from ternmq_model.subscription import ALL_TAGS, SQL92, Subscription, parse_subscription
from ternmq_protos.v1 import messages_pb2 as messages
from ternmq_store.queues.ext_units import BitMapFilter
from ternmq_store.queues.read_request import FILTER_UNITS_MAX, RecordFilter

PROPERTY_FILTER_SETTING: Final = "broker.property_filter_enabled"

_STEPS_MAX: Final = 6_000
"""Parts of conditions that one read evaluates: about 1 ms of the loop."""

_STEPS_TO_READ: Final = 10
"""Cost of reading the properties of one message, in parts of conditions."""

_MESSAGES_LEAST: Final = 4


class PullFilter(NamedTuple):
    """Filters of a read: fields of a `ReadRequest`."""

    tag_codes: frozenset[int] | None = None
    record_filter: RecordFilter | None = None
    record_filter_max: int = FILTER_UNITS_MAX
    bit_map_filter: BitMapFilter | None = None


class FilterRules:
    """Rules for subscriptions at this broker. Reads the tables, owns nothing.

    Args:
        property_filter_enabled: True when SQL92 conditions are served.
        retry_filter_enabled: True when the messages of a retry topic are filtered by the group's
            subscriptions to their origin topics.
        bit_maps_enabled: True when bit maps of messages are stored and used.
    """

    def __init__(
        self,
        clients: ClientTable,
        table: FilterTable,
        *,
        property_filter_enabled: bool = True,
        retry_filter_enabled: bool = False,
        bit_maps_enabled: bool = False,
    ) -> None:
        self._clients = clients
        self._table = table
        self._property_filter_enabled = property_filter_enabled
        self._retry_filter_enabled = retry_filter_enabled
        self._bit_maps_enabled = bit_maps_enabled

    def subscription_of(
        self,
        topic: str,
        given: messages.Subscription,
        *,
        code_when_off: ResponseCode = ResponseCode.SYSTEM_ERROR,
    ) -> Subscription:
        """Return a subscription that a client has sent.

        Args:
            topic: Topic of the subscription.
            given: The subscription as the client sent it.
            code_when_off: Response code for SQL92 where it is off. RocketMQ's code for pulls makes
                readers retry; the code for Sessions forbids a retry.

        Raises:
            IllegalName: The topic is illegal.
            RefusedError: The subscription has another topic, cannot be parsed, or is SQL92 where
                SQL92 is off.
        """
        if given.topic and given.topic != topic:
            raise invalid(f"the subscription is to {given.topic!r}, not {topic!r}")
        kind = given.expression_type
        if kind == SQL92 and not self._property_filter_enabled:
            remark = f"subscription to {topic!r}: {SQL92} is not served here, since "
            remark += f"{PROPERTY_FILTER_SETTING} is off"
            raise refusal(code_when_off, remark)
        text = given.expression if kind == SQL92 else given.expression or ALL_TAGS
        try:
            return parse_subscription(topic, text, kind, version_ms=given.version_ms)
        except IllegalName:
            raise
        except UsageError as error:
            raise refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from None

    def check_registered(self, group: str, known: Subscription) -> None:
        """Refuse a read by a condition that is not registered.

        Raises:
            RefusedError: An SQL92 condition is not registered, or only with an older version.
        """
        if known.condition is None:
            return
        one = self._table.get(known.topic, group)
        what = f"the condition of group {group!r} for {known.topic!r}"
        if one is None:
            raise refusal(ResponseCode.FILTER_DATA_NOT_EXIST, f"{what} is not registered")
        if one.client_version < known.version_ms:
            remark = f"{what} is of version {one.client_version}, not yet {known.version_ms}"
            raise refusal(ResponseCode.FILTER_DATA_NOT_LATEST, remark)

    def pull_filter(self, group: str, subscription: Subscription) -> PullFilter:
        """Return the filters of one read; a later read may have others."""
        condition, codes = subscription.condition, subscription.tag_codes
        if condition is None:
            if self._retry_filter_enabled and subscription.topic == RETRY_PREFIX + group:
                rules = self._clients.subscriptions(group)
                steps = max(map(_steps, rules.values()), default=1)
                return PullFilter(codes, _by_origin(rules), _most(steps))
            return PullFilter(codes)
        return PullFilter(
            codes,
            _by_condition(condition),
            _most(condition.steps),
            self._bit_test(group, subscription) if self._bit_maps_enabled else None,
        )

    def _bit_test(self, group: str, subscription: Subscription) -> BitMapFilter | None:
        """Return the bit map filter of a reader; None where no bit maps exist for its condition.

        Bit maps exist for a condition that its group has registered and used since without a
        break.
        """
        one = self._table.get(subscription.topic, group)
        if one is None or one.dead_at_ms or one.expression != subscription.expression:
            return None
        if one.bloom_bits != BLOOM.bits:
            return None
        return BitMapFilter(BLOOM.bit_map(one.bloom_positions), one.begin)


def _most(steps: int) -> int:
    """Return the limit of messages of one read, by the number of parts of its condition."""
    most = _STEPS_MAX // (steps + _STEPS_TO_READ)
    return max(min(most, FILTER_UNITS_MAX), _MESSAGES_LEAST)


def _steps(subscription: Subscription) -> int:
    return 1 if subscription.condition is None else subscription.condition.steps


def _by_condition(condition: Condition) -> RecordFilter:
    matches = condition.matches
    return lambda data: matches(decode_visible(data))


def _by_origin(rules: Mapping[str, Subscription]) -> RecordFilter:
    """Return the filter of a retry topic, by the subscription to the origin topic of a message.

    A message without such a subscription matches.
    """

    def matches(data: bytes) -> bool:
        properties = decode_visible(data)
        rule = rules.get(properties.get(RETRY_TOPIC, ""))
        return rule is None or rule.matches(properties)

    return matches
