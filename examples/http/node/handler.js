// A handler of messages in Node, without any library. Run it beside a worker:
//
//   HOST=127.0.0.1 PORT=8080 node handler.js &
//   headgate worker shop/emails --http http://127.0.0.1:8080/work
//
// The response decides about the message. 2xx: done. 429 or 503: retry after Retry-After. With the header
// Headgate-Reject: to the dead-letter queue at once. Any other response: retry after a backoff.

"use strict";

const http = require("node:http");

const seen = new Set(); // a handler may get a message twice: keep this in your database in production

async function send(mail, message) {
  if (seen.has(message.id)) return;
  if (mail.to === "busy@example.org" && message.attempt === 1) throw Object.assign(new Error("greylisted"), { after: 1 });
  seen.add(message.id);
  console.log(JSON.stringify({ sent: mail.to, id: message.id, attempt: message.attempt, trace: message.trace, attributes: message.attributes }));
}

const server = http.createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const message = {
    id: request.headers["headgate-message-id"],
    attempt: Number(request.headers["headgate-attempt"]),
    fencingToken: Number(request.headers["headgate-fencing-token"]),
    trace: request.headers.traceparent,
    attributes: JSON.parse(request.headers["headgate-attributes"] ?? "{}"),
  };
  let mail;
  try {
    mail = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch (error) {
    response.writeHead(422, { "Headgate-Reject": "not JSON" }).end(String(error.message));
    return;
  }
  try {
    await send(mail, message);
    response.writeHead(204).end();
  } catch (error) {
    if (error.after !== undefined) response.writeHead(503, { "Retry-After": String(error.after) }).end(error.message);
    else response.writeHead(500).end(error.stack);
  }
});

// In a pod it listens at all addresses, since Kubernetes probes it from outside.
server.listen(Number(process.env.PORT ?? 8080), process.env.HOST, () => {
  console.log(JSON.stringify({ listening: server.address().port }));
});

process.on("SIGTERM", () => server.close(() => process.exit(0)));
