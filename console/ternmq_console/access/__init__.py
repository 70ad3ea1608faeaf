"""Users and permissions: `user` and `acl`."""
