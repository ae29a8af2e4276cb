"""The listener process: records of the user's topics that start runs."""
