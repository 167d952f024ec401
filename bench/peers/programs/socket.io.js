// Socket.IO over WebSocket alone: a reader names its topic, which is a room, in the URL, and connects to the namespace (40).
"use strict";

const { Server } = require("socket.io");
const http = require("node:http");
const { deflate, eachLine } = require("./topic_lines");

const server = http.createServer();
const io = new Server(server, { transports: ["websocket"], pingInterval: 600_000, serveClient: false, perMessageDeflate: deflate });
io.on("connection", (socket) => socket.join(socket.handshake.query.topic));
server.listen(Number(process.argv[2]), "127.0.0.1", () =>
    eachLine((topic, payload) => io.to(topic).emit("news", JSON.parse(payload))),
);
