"""Push consumers: members of a group that hand messages to listeners."""
