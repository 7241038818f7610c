"""Plans and weights at run time: requests, and what is repeated in the background."""
