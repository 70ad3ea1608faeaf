import pytest

from ternmq_model.errors import ConfigError, IllegalName
from ternmq_model.permission import Action
from ternmq_security.access.grants import Effect, Grant, ResourcePattern


@pytest.mark.parametrize(
    "text", ["*", "cluster", "topic:a", "topic:a*", "topic:*", "group:a-b", "group:*", "group:x*"]
)
def test_pattern_survives_a_round_trip(text: str) -> None:
    assert str(ResourcePattern.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "x", "cluster:a", "topic", "topic:", "topic:a b", "topic:a**", "topic:%RETRY%g"]
)
def test_text_that_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="resource="):
        ResourcePattern.parse(text)


def test_replicate_is_granted_on_the_cluster_alone() -> None:
    for text in ("*", "cluster"):
        Grant("a", Effect.ALLOW, Action.REPLICATE, ResourcePattern.parse(text))
    with pytest.raises(ConfigError, match="replicate needs"):
        Grant("a", Effect.ALLOW, Action.REPLICATE, ResourcePattern.parse("topic:a"))


def test_grant_names_a_legal_user_or_anonymous() -> None:
    grant = Grant("anonymous", Effect.DENY, Action.PUBLISH, ResourcePattern.parse("topic:a*"))
    assert str(grant) == "anonymous deny publish topic:a*"
    with pytest.raises(IllegalName):
        Grant("a b", Effect.DENY, Action.PUBLISH, ResourcePattern.parse("topic:a"))
