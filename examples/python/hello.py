"""Put a message and receive it. The connection comes from the environment: HEADGATE_CONTACT_POINTS and the rest."""

import asyncio

import headgate


async def main() -> None:
    """One message to shop/emails, and back."""
    async with headgate.connect() as p:
        q = await p.queue("shop/emails")
        put = await q.put({"to": "you@example.org", "subject": "hello"})
        print("put", put)
        async for message in q:
            async with message:  # acknowledged where this block ends, given back where it raises
                print("received", message.id, message.json())
            if message.id == put:
                break


asyncio.run(main())
