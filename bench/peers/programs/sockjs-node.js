// sockjs-node: a reader says its topic. Its first frame, "o", comes before that.
"use strict";

const http = require("node:http");
const sockjs = require("sockjs");
const { eachLine, Topics } = require("./topic_lines");

const topics = new Topics();
const echo = sockjs.createServer({ prefix: "/sockjs", log: () => {}, heartbeat_delay: 600_000 });
echo.on("connection", (connection) => {
    connection.on("data", (topic) => {
        // The crowd waits for an answer to each of its two lines, and "o" is one.
        if (topic === "") return;
        topics.add(topic, connection);
        connection.on("close", () => topics.remove(topic, connection));
        connection.write("{}");
    });
});
const server = http.createServer();
echo.installHandlers(server);
server.listen(Number(process.argv[2]), "127.0.0.1", () =>
    eachLine((topic, payload) => {
        for (const connection of topics.of(topic)) connection.write(payload);
    }),
);
