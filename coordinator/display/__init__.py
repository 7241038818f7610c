"""What people see on a terminal or a page: names that are safe to print, and progress."""
