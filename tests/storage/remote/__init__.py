"""Stores by URL while their object store misbehaves."""
