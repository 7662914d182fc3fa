"""Put a message and receive it, in this process or by a worker of the queue. The connection comes from the
environment."""

import asyncio

import headgate


async def main() -> None:
    """One message to shop/emails, and back."""
    async with headgate.connect() as p:
        q = await p.queue("shop/emails")
        put = await q.put({"to": "you@example.org", "subject": "hello"})
        print("put", put)
        for _ in range(30):
            for message in await q.receive(10, wait=1):
                async with message:  # acknowledged where this block ends, returned where it raises
                    print("received", message.id, message.json())
            state = (await q.where(put)).state.value
            if state == "settled":  # also where a worker of the queue was first
                break
        print(state, put)


asyncio.run(main())
