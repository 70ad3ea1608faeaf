"""Credit of one queue."""

from ternmq_consumer.pull_stream.flow_control import Credit, CreditLedger, FlowControlWindow


def test_opening_credit_is_the_whole_unused_window() -> None:
    assert CreditLedger(FlowControlWindow(100, 1000)).opening() == Credit(100, 1000)


def test_held_messages_are_missing_from_the_reopened_window() -> None:
    ledger = CreditLedger(FlowControlWindow(100, 1000))
    ledger.receive(30, 900)
    ledger.release(10, 50)

    assert ledger.opening() == Credit(80, 150)
    assert ledger.due() is None, "what was given back is in the opening credit already"


def test_credit_is_sent_once_a_quarter_of_either_limit_has_returned() -> None:
    ledger = CreditLedger(FlowControlWindow(100, 1000))
    ledger.receive(60, 600)

    ledger.release(10, 100)
    assert ledger.due() is None
    ledger.release(10, 150)
    assert ledger.due() == Credit(20, 250)
    assert ledger.due() is None
    ledger.release(25, 25)
    assert ledger.due() == Credit(25, 25)


def test_credit_is_withheld_while_reading_is_too_far_ahead_of_committing() -> None:
    ledger = CreditLedger(FlowControlWindow(100, 1000, span_max=200))
    ledger.receive(100, 1000)
    ledger.release(99, 990)

    assert ledger.due(span=201) is None
    assert ledger.due(span=200) == Credit(99, 990)


def test_record_larger_than_the_window_is_paid_off_before_more_comes() -> None:
    ledger = CreditLedger(FlowControlWindow(100, 1000))
    ledger.receive(1, 5000)
    ledger.receive(80, 100)

    assert ledger.opening() == Credit(19, 0)
    ledger.release(80, 100)
    assert ledger.due() == Credit(80, 0), "the bytes are still owed to the window"
    ledger.release(1, 5000)
    assert ledger.due() == Credit(1, 1000)
