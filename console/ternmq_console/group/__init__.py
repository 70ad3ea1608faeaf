"""Commands of `ternmq group` and `ternmq offset`."""
