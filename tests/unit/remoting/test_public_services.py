from google.protobuf import descriptor_pool

from ternmq_remoting.public_services import (
    HEALTH,
    REFLECTION_V1,
    REFLECTION_V1ALPHA,
    SERVING,
    HealthReply,
    HealthRequest,
)


def test_default_thread_pool_is_left_to_others() -> None:
    for file in (HEALTH, REFLECTION_V1, REFLECTION_V1ALPHA):
        assert file.pool is not descriptor_pool.Default()


def test_health_messages_have_their_standard_bytes() -> None:
    assert HealthRequest(service="a").SerializeToString() == b"\x0a\x01a"
    assert HealthReply(status=SERVING).SerializeToString() == b"\x08\x01"


def test_reflection_versions_differ_in_their_package_only() -> None:
    new, old = (file.serialized_pb for file in (REFLECTION_V1, REFLECTION_V1ALPHA))
    assert len(new) < len(old)
    for file in (REFLECTION_V1, REFLECTION_V1ALPHA):
        reply = file.message_types_by_name["ServerReflectionResponse"]
        assert {field.name: field.number for field in reply.fields} == {
            "valid_host": 1,
            "original_request": 2,
            "file_descriptor_response": 4,
            "all_extension_numbers_response": 5,
            "list_services_response": 6,
            "error_response": 7,
        }
