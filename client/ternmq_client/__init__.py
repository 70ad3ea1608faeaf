"""Client of a cluster, shared by producers and consumers: routes, connections, Sessions."""
