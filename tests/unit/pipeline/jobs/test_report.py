import pytest

from ternmq_model.errors import UsageError
from ternmq_pipeline.jobs.report import report


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"hours": 0}, "hours=0"),
        ({"hours": 10_000}, "hours="),
        ({"slow_after_s": 0}, "slow_after_s"),
    ],
)
def test_number_out_of_range_is_refused_by_name(options: dict[str, int], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        report("127.0.0.1:1", **options)  # type: ignore[arg-type]
