"""One-way sends: the sink of answers that nobody waits for."""

from collections.abc import Callable

from ternmq_model.errors import TernError
from ternmq_model.message import SendResult


class OneWaySink:
    """Takes the answer to a message that nobody waits for.

    Args:
        on_answer: Called once, with where it was stored or why it was not.
    """

    __slots__ = ("_is_done", "_on_answer")

    def __init__(self, on_answer: Callable[[SendResult | TernError], None]) -> None:
        self._on_answer = on_answer
        self._is_done = False

    def done(self) -> bool:
        """Return whether the answer was given."""
        return self._is_done

    def set_result(self, result: SendResult, /) -> None:
        """Answer: stored."""
        self._is_done = True
        self._on_answer(result)

    def set_exception(self, error: BaseException, /) -> None:
        """Answer: not stored, or nobody knows."""
        assert isinstance(error, TernError), "messages fail with our own errors"
        self._is_done = True
        self._on_answer(error)
