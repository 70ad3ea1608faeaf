from typing import Any

import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.redrive import redrive


@pytest.mark.parametrize(
    ("group", "options", "named"),
    [
        ("g", {}, "checkpoint: give a folder"),
        ("g h", {"checkpoint": "/x"}, "group 'g h'"),
        ("g", {"checkpoint": "/x", "batch_rows": -1}, "batch_rows=-1"),
    ],
)
def test_illegal_options_are_refused_by_name(
    group: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        redrive(group, nameserver="127.0.0.1:1", **options)
