"""Transactions: half messages that are committed or rolled back.

A transaction is the log offset of its first half message, the *transaction offset*. The log holds
its history, as records of five kinds:

    half       topic RMQ_SYS_TRANS_HALF_TOPIC: the message, with its real topic and queue as
               properties. No consumer can read it there.
    copy       the same half message again, behind the others: put back after each question, with
               the number of questions. The prepared offset in its header is the transaction.
    message    the committed message in its own topic and queue, with the same prepared offset.
    parked     a copy in TRANS_CHECK_MAX_TIME_TOPIC of a half message that no producer decided, with
               the same prepared offset.
    op         topic RMQ_SYS_TRANS_OP_HALF_TOPIC: names the queue offsets of half messages and
               copies of ended transactions.

The states, and the steps from one to the next:

    sent -> OPEN          the half is appended
    OPEN -> OPEN          question: a copy is appended, and the question is written to a live
                          producer of the group; without such a producer nothing is counted
    OPEN -> COMMITTED     the message is appended. Its op follows within 3 s or 4,096 bytes
    OPEN -> ROLLED BACK   the op is appended: on request; or together with the parked copy, when 15
                          questions had no answer or the half is as old as the log's retention
    COMMITTED, ROLLED BACK: for ever

A half with the property TERNMQ_STAGED_FOR is *staged*: it belongs to a batch that is committed or
rolled back as a whole. No producer is asked about it, and it is never copied:

    OPEN -> ROLLED BACK   its staging time is over, by the wall clock since its store time: the op
                          is appended

Every step is one append, and the table in memory changes in the same turn of the loop, so that the
two cannot differ. An answer to a client waits until the record of the step is confirmed.

States after a crash, by the last record that is in the log:

    half                  OPEN: a producer is asked.
    copy                  OPEN, with its number of questions; the half before it is skipped, for
                          both name one transaction. The question may not have been sent.
    question sent, the copy lost: a producer is asked once more with the same number.
    message, not its op   COMMITTED: the message is found by its prepared offset (`recovery`), and
                          its op is written again.
    message and op        COMMITTED.
    op of a rollback      ROLLED BACK.
    parked copy, not op   ROLLED BACK: the parked copy is found like a message.

A start fills the table from the log: the half topic from the group's offset on holds transactions
that may be open; the op topic from its offset on names those that ended; and for the transactions
that are then still open, the log itself is read for messages without an op. These lie behind the
*scan offset* in `config/transactions.json`: the first message without an op, or the flushed end of
the log when there is none; written every few seconds. No answer to EndTransaction and no question
leaves before the table is filled.
"""
