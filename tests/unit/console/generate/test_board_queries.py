from ternmq_console.generate.board_queries import (
    mean,
    most,
    of_process,
    quantile,
    rate,
    sum_once,
)


def test_sum_takes_the_larger_of_master_and_slave_first() -> None:
    assert sum_once("lag", 'topic="x"', "topic", "group") == (
        'sum by (topic) (max by (cluster, node_id, topic, group) (lag{topic="x"}))'
    )
    assert sum_once("lag", "", "node_id") == (
        "sum by (node_id) (max by (cluster, node_id) (lag{}))"
    )


def test_rates_and_quantiles_keep_their_labels() -> None:
    assert rate("a_total", "b", "c") == "sum by (c) (rate(a_total{b}[$__rate_interval]))"
    assert quantile(0.5, "a", "b", "c") == (
        "histogram_quantile(0.5, sum by (c, le) (rate(a_bucket{b}[$__rate_interval])))"
    )
    assert mean("a", "b", "c") == f"{rate('a_sum', 'b', 'c')} / {rate('a_count', 'b', 'c')}"
    assert most("a", "b", "c") == "max by (c) (a{b})"


def test_metric_of_a_process_gets_the_names_of_its_node() -> None:
    assert "on (job, instance) group_left (node_type, node_id)" in of_process("memory")
