import os

import pytest

from ternmq_model.errors import ClosedError
from ternmq_runtime.fork_safety import check_process, is_inherited


def test_resource_of_this_process_or_of_nobody_may_be_used() -> None:
    for process_id in (0, os.getpid()):
        assert not is_inherited(process_id)
        check_process(process_id)


def test_resource_of_another_process_is_refused_by_an_error_that_names_both() -> None:
    parent = os.getppid()
    assert is_inherited(parent)
    with pytest.raises(ClosedError, match=rf"process {parent}, .*{os.getpid()}\) was forked"):
        check_process(parent)
