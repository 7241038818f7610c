"""What `make bench` measures of stores."""
