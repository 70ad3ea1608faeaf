from ternmq_client.interceptors import ConsumeEvent, ConsumeInterceptors
from ternmq_model.queue import MessageQueue


def test_listener_calls_are_intercepted_before_and_after() -> None:
    log: list[str] = []

    class Watcher:
        def __init__(self, name: str) -> None:
            self._name = name

        def before_consume(self, event: ConsumeEvent) -> None:
            log.append(f"{self._name}+{event.group}")

        def after_consume(self, event: ConsumeEvent) -> None:
            log.append(f"{self._name}-{event.group}")

    event = ConsumeEvent(
        group="readers", queue=MessageQueue("T", "b", 0), messages=(), began_at_ms=1
    )
    interceptors = ConsumeInterceptors((Watcher("a"), Watcher("b")))
    assert interceptors
    assert not ConsumeInterceptors(())
    interceptors.before(event)
    interceptors.after(event)
    assert log == ["a+readers", "b+readers", "b-readers", "a-readers"]
