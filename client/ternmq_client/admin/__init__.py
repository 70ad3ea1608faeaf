"""Administration of a cluster: `AdminClient` and the calls that it is made of, by subject."""
