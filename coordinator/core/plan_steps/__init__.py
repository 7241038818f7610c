"""How plans are made, compared, applied and explained."""
