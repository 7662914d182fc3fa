"""What every process of Headgate needs: its event loop, supervised background work, the health server."""
