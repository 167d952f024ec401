// Publishes one message and waits until the fabric has it: with amqplib, and with no library of ours.
//
//   npm install
//   node publish.mjs amqp://guest:guest@127.0.0.1:18110/%2F cms news.breaking '{"headline":"Hello from Node"}'
//
// Prints the receipt. Exit code 0: stored and routed; 1: rejected, or no answer within 30 s.
import { randomUUID } from "node:crypto";
import amqp from "amqplib";

const [url, appId, topic, body] = process.argv.slice(2);
const messageId = randomUUID();
// Receipts are known by it: whoever can guess it could answer for a router.
const secret = randomUUID();
const connection = await amqp.connect(url, { timeout: 10_000 });
const channel = await connection.createConfirmChannel();
// The broker gives the queue its name, and deletes it with the connection.
const { queue } = await channel.assertQueue("", { exclusive: true });

const receipt = new Promise((resolve) => {
  channel.consume(
    queue,
    (message) => {
      // A receipt of another message, or a second one of this: the queue is the connection's.
      if (message?.properties.correlationId === secret) resolve(JSON.parse(message.content));
    },
    { noAck: true },
  );
});

const options = {
  contentType: "application/json",
  messageId,
  appId,
  correlationId: secret,
  replyTo: queue,
  mandatory: true,
};
const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms).unref());

/** Ends, not knowing what became of the message. It says no goodbye: a broker that is silent wouldn't answer. */
function giveUp(why) {
  console.error(`${why}: send it again later, with message_id ${messageId}`);
  process.exit(1);
}

let found;
// While there is no receipt, the same again with the same message_id: readers get it once.
for (let wait = 500; found === undefined && wait < 20_000; wait *= 2) {
  channel.publish("publish", topic, Buffer.from(body), options);
  const confirmed = channel.waitForConfirms().then(() => true);
  if (!(await Promise.race([confirmed, after(10_000)]))) giveUp("no confirm within 10 s");
  found = await Promise.race([receipt, after(wait)]);
}
if (!found) giveUp("no receipt");
console.log(JSON.stringify(found));
process.exitCode = found.status === "routed" ? 0 : 1;
await connection.close();
