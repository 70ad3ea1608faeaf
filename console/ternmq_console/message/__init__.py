"""Commands on messages: `ternmq message`, `ternmq produce` and `ternmq consume`."""
