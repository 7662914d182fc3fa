"""The same without async: for threads, scripts, and frameworks that know no event loop."""

import headgate

with headgate.connect_sync() as p:
    q = p.queue("shop/emails")
    put = q.put({"to": "you@example.org", "subject": "hello"})
    print("put", put)
    for message in q:
        with message:
            print("received", message.id, message.json())
        if message.id == put:
            break
