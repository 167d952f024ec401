// ws: a reader says its topic.
"use strict";

const { WebSocketServer } = require("ws");
const { deflate, eachLine, Topics } = require("./topic_lines");

const topics = new Topics();
const server = new WebSocketServer({ host: "127.0.0.1", port: Number(process.argv[2]), perMessageDeflate: deflate });
server.on("connection", (socket) => {
    socket.on("error", () => {});
    socket.on("message", (data) => {
        const topic = String(data);
        topics.add(topic, socket);
        socket.on("close", () => topics.remove(topic, socket));
        socket.send("{}");
    });
});
server.on("listening", () =>
    eachLine((topic, payload) => {
        for (const socket of topics.of(topic)) socket.send(payload);
    }),
);
