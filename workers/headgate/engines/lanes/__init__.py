"""Lease, dispatcher, delivery state and settle log of one lane; they know no engine."""
