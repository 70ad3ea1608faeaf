"""Tries of messages whose queue was lost and taken again."""

from ternmq_consumer.listener.reconsume_times import ReconsumeTimes
from ternmq_model.redelivered_message import tried_again
from tests.support.handed_out import QUEUE, message_at


def test_message_read_anew_tells_of_its_tries_before() -> None:
    counts = ReconsumeTimes()
    first = [message_at(offset) for offset in range(3)]
    counts.note(QUEUE, first, [tried_again(tried_again(first[1])), first[2]])
    anew = counts.apply(QUEUE, [message_at(offset) for offset in range(1, 4)])
    assert [message.reconsume_times for message in anew] == [2, 0, 0]
    counts.note(QUEUE, anew[:1], [tried_again(anew[0])])
    anew = counts.apply(QUEUE, [message_at(1)])
    assert anew[0].reconsume_times == 3


def test_finished_messages_and_those_of_other_members_are_forgotten() -> None:
    counts = ReconsumeTimes()
    messages = [message_at(offset) for offset in range(4)]
    counts.note(QUEUE, messages, [tried_again(message) for message in messages])
    counts.note(QUEUE, messages[2:3], [])
    later = counts.apply(QUEUE, [message_at(1)])
    assert later[0].reconsume_times == 1
    again = counts.apply(QUEUE, [message_at(offset) for offset in range(4)])
    assert [message.reconsume_times for message in again] == [0, 1, 0, 1]
