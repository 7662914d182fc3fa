"""The same without async: for threads, scripts, and frameworks without an event loop."""

import headgate

with headgate.connect_sync() as p:
    q = p.queue("shop/emails")
    put = q.put({"to": "you@example.org", "subject": "hello"})
    print("put", put)
    for _ in range(30):
        for message in q.receive(10, wait=1):
            with message:
                print("received", message.id, message.json())
        state = q.where(put).state.value
        if state == "settled":  # also where a worker of the queue was first
            break
    print(state, put)
