// What the peers in JavaScript share. Each line of standard input is "TOPIC PAYLOAD", and goes to the readers of that topic.
"use strict";

const readline = require("node:readline");

/** permessage-deflate, if it was asked for, from as many bytes on as the gateway compresses. */
exports.deflate =
    process.argv[3] === "deflate" ? { threshold: 256, serverNoContextTakeover: true, clientNoContextTakeover: true } : false;

/** Says that the server listens, and has `publish(topic, payload)` called for each line, until they end. */
exports.eachLine = (publish) => {
    readline
        .createInterface({ input: process.stdin })
        .on("line", (line) => {
            const at = line.indexOf(" ");
            publish(line.slice(0, at), line.slice(at + 1));
        })
        .on("close", () => process.exit(0));
    console.log("{}");
};

/** Readers by topic. */
exports.Topics = class {
    #readers = new Map();

    add(topic, reader) {
        if (!this.#readers.has(topic)) this.#readers.set(topic, new Set());
        this.#readers.get(topic).add(reader);
    }

    remove(topic, reader) {
        this.#readers.get(topic)?.delete(reader);
    }

    of(topic) {
        return this.#readers.get(topic) ?? [];
    }
};
