from ternmq_nameserver.topic_index import TopicIndex


def index_of(**topics: str) -> TopicIndex:
    index = TopicIndex()
    for name, told in topics.items():
        index.add(told, name)
    return index


def test_topic_is_listed_while_one_broker_has_it() -> None:
    index = index_of(a="tu", b="t")
    assert [index.brokers(topic) for topic in "tuv"] == [["a", "b"], ["a"], []]
    assert index.page("", None) == ["t", "u"]
    assert len(index) == 2
    index.remove("tu", "a")
    assert (index.brokers("t"), index.page("", None)) == (["b"], ["t"])
    index.remove("t", "b")
    assert index.page("", None) == []
    assert len(index) == 0


def test_pages_go_on_behind_a_topic_that_may_have_gone() -> None:
    index = index_of(a="bdfh")
    assert index.page("", 2) == ["b", "d"]
    index.remove("d", "a")
    index.add("ae", "a")
    assert index.page("d", 2) == ["e", "f"]
    assert index.page("f", 2) == ["h"]
    assert index.page("h", 2) == []


def test_page_of_some_brokers_is_full_as_long_as_they_have_topics() -> None:
    index = index_of(a="bdf", b="aceg")
    assert index.page("", 2, has_name="b".__eq__) == ["a", "c"]
    assert index.page("c", 2, has_name="b".__eq__) == ["e", "g"]
    assert index.page("", 3, has_name="a".__eq__) == ["b", "d", "f"]
