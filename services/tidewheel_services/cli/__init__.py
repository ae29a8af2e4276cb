"""The command line: a module per family of commands. Nothing heavy is imported before a command needs it."""

from tidewheel_services.cli.app import main

__all__ = ["main"]
