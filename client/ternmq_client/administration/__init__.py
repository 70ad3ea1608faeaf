"""What an administrator asks and tells, by capability. `ternmq_client.admin` is the door."""
