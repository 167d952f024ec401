/** newsfabric/react where pages are rendered. In a browser it is tested by tests/clients/test_javascript_in_react.py. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { createElement } from "react";
import { renderToString } from "react-dom/server";

import { connect } from "../src/index.ts";
import { useConnection, useTopic } from "../src/react.ts";

test("a component is rendered without a browser: idle, and without messages", () => {
  const fabric = connect({ endpoints: "/endpoints.json" });
  const News = () => {
    const { messages, isServed, hasGap, error } = useTopic(fabric, "news.world", { rewind: 5 });
    return `${useConnection(fabric).state} ${messages.length} ${isServed} ${hasGap} ${error}`;
  };
  assert.equal(renderToString(createElement(News)), "idle 0 false false null");
});
