"""Commands of `ternmq broker`: the service, and what an operator does with a running one."""
