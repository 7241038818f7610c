"""Groups of ten million members: planned in the library, and served by a coordinator."""
