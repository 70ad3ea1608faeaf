"""Transactions: half messages that become messages, or nothing.

A transaction is its first half message's log offset, the *transaction offset*. What happens to it
lies in the log, as records of five kinds:

    half       topic RMQ_SYS_TRANS_HALF_TOPIC: the message, with its real topic and queue as
               properties. Nobody can read it there.
    copy       the same half message again, behind the others: put back after each question, with
               the number of questions asked. Its header's prepared offset is the transaction.
    message    the committed message in its own topic and queue; its prepared offset likewise.
    parked     a copy in TRANS_CHECK_MAX_TIME_TOPIC of one that nobody could decide; likewise.
    op         topic RMQ_SYS_TRANS_OP_HALF_TOPIC: names the queue offsets of half messages and
               copies that are done with.

The states, and what leads from one to the next:

    sent -> OPEN          the half's record is appended
    OPEN -> OPEN          asked: a copy is appended, and the question is written to a live
                          producer of the group; or nobody is there to ask, and nothing is counted
    OPEN -> COMMITTED     the message is appended. Its op follows within 3 s or 4,096 bytes
    OPEN -> ROLLED BACK   the op is appended: asked for; or together with the parked copy, when 15
                          questions had no answer or the half is as old as the log's retention
    COMMITTED, ROLLED BACK: for ever

A half with the property TERNMQ_STAGED_FOR is *staged*: one of a batch whose end is decided for all
of it. Nobody is asked about it, and it stays where it is:

    OPEN -> ROLLED BACK   its time is over, by the wall clock since its store time: the op is
                          appended

Every step is one append, and the table in memory changes in the same turn of the loop, so the two
cannot differ. An answer to a client waits until the record that made the step is confirmed.

What a crash can leave, by the last record that is in the log:

    half                  OPEN: it is asked for.
    copy                  OPEN, with its number of questions; the half before it is passed over,
                          for both name one transaction. Its question may not have been sent.
    question sent, the copy lost: it is asked once more with the same number.
    message, not its op   COMMITTED: the message is found by its prepared offset (`recovery`), and
                          its op is written anew.
    message and op        COMMITTED.
    op of a rollback      ROLLED BACK.
    parked copy, not op   ROLLED BACK: found as messages are.

The way back to this table after a start: the half topic from the group's offset on gives what may
be open; the op topic from its offset on takes away what is done; and for what is then still open,
the log itself is read for messages whose op was not yet written. Those lie behind the *scan
offset*, which `config/transactions.json` keeps: the first message without an op, or the flushed
end of the log when there is none; written every few seconds. No answer to EndTransaction and no
question leaves before that is done.
"""
