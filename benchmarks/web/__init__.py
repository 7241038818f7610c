"""What the pages for browsers cost."""
