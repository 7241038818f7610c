"""SQL views, one a file."""
