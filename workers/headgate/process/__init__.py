"""What every process of Headgate needs: its event loop and its end at SIGTERM, supervised background work, the port
of its probes and metrics.
"""
