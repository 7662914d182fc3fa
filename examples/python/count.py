"""Count views of pages. The connection comes from the environment: HEADGATE_CONTACT_POINTS and the rest."""

import asyncio

import headgate


async def main() -> None:
    """A thousand views of ten pages; updates that wait at the same time share their writes."""
    async with headgate.connect() as p:
        views = await p.counter("shop/page-views")
        await asyncio.gather(*(views.add(f"page-{n % 10}") for n in range(1000)))
        print("page-1 was viewed", await views.value("page-1"), "times")


asyncio.run(main())
