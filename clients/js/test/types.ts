// Compiled, never run: code that pages may write, and code that they may not. `npm run types`

import { connect, FabricError, type Login, type Message, type Page, type State, type Subscription } from "newsfabric";

interface Story {
  headline: string;
}

const fabric = connect({
  endpoints: ["https://oregon.example/endpoints.json", "https://dublin.example/endpoints.json"],
  token: async () => "a token",
  transports: ["websocket", "xhr-streaming"],
  heartbeat: { visible: 4000 },
  sockjs: () => Promise.resolve(class {}),
  WebSocket,
});

const subscription: Subscription = fabric.subscribe<Story>("news.breaking", {
  since: null,
  rewind: "5m",
  onMessage: ({ body, position }: Message<Story>) => console.log(body.headline, position?.length),
  onMessages: (messages) => console.log(messages[0]?.body.headline),
  onGap: ({ topic }) => console.log(topic),
  onSubscribed: ({ resumed, recovered }) => console.log(resumed && recovered),
  onMark: ({ mark, at }) => console.log(mark === "read", at.toFixed()),
  onError: (error) => console.log(error instanceof FabricError, error.code, error.temporary),
});
const position: string | null = subscription.position;

const off: () => void = fabric.on("state", ({ state, wait }: State) => console.log(state === "waiting", wait));
fabric.on("login", ({ user, expiresAt }: Login) => console.log(user, expiresAt));
fabric.on("logout", ({ user, reason, code }) => console.log(user, reason, code === 4001));
fabric.on("error", (error) => console.log(error.message));
const { user } = await fabric.login("a token");
await fabric.refresh();
fabric.logout();
await fabric.dismiss({ topic: `user.${user}`, id: "0194" });
const { messages, more } = await fabric.history("news.breaking", { limit: 5, before: "0194" });
console.log(position, messages[0]?.body, more);
const page: Page = await fabric.history("news.breaking", { after: position ?? "", limit: 1000 });
console.log(page.recovered, page.position.length, fabric.statistics.repeats);
off();
await subscription.unsubscribe();
fabric.close();

// @ts-expect-error a position is the fabric's to make
subscription.position = "mine";
// @ts-expect-error there is no such event
fabric.on("message", () => {});
// @ts-expect-error endpoints are needed
connect({});
// @ts-expect-error a body of unknown shape must be looked at first
fabric.subscribe("t", { onMessage: ({ body }) => console.log(body.headline) });
