"""Maintainers' tools: they make what the package ships."""
