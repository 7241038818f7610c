"""Of results that are equally fair, those whose members have few ranges."""
