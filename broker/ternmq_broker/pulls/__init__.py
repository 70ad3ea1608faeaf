"""What a pull tells besides messages, and what it may commit."""

from ternmq_broker.groups.offset_rules import OffsetRules as OffsetRules
from ternmq_broker.pulls.answers import PullAnswers as PullAnswers
from ternmq_broker.pulls.moved_events import MovedEvents as MovedEvents
from ternmq_broker.pulls.moved_events import OffsetMoved as OffsetMoved
