"""Plans: what would move, why, and who decided it."""
