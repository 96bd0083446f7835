"""The command `tosnative`: look at, move and remove objects, check a set-up, serve a local TOS."""

from tosnative.cli.command import main

__all__ = ["main"]
