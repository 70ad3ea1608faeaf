"""Users, their permissions, and the decisions about calls."""
