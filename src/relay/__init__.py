"""Relay: outbound webhook delivery with a receipt for every event.

The package holds one folder per room (see ``docs/architecture.md``); importing it runs nothing. It owns the version
number, which the build reads from here, and leaves everything else to the rooms.
"""

__version__ = "0.1.0"
