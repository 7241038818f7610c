"""Members of a group that was loaded, as rows of columns; objects only for those that changed."""
