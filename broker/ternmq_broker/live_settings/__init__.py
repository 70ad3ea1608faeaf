"""The few settings that an operator may change while the broker runs."""
