"""The cluster in containers. A package, so that its containers end with the last of its tests."""
