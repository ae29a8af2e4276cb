"""The processes: thin; they wire settings, log and library together."""
