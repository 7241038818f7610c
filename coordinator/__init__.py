"""The group coordinator: a pure core with a shell around it."""
