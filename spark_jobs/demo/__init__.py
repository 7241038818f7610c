"""`muster demo`: the main job on real input, and a group served to members of its own."""
