"""The SDK for code without asyncio."""
