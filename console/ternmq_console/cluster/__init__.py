"""Commands of `ternmq cluster`."""
