/** Lets tests import src/*.ts in any Node: `node --import ./test/typescript.mjs --test test/*.test.mjs` */

import { readFileSync } from "node:fs";
import { register } from "node:module";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

if (isMainThread) register(import.meta.url);

export async function load(url, context, next) {
  if (!url.endsWith(".ts")) return next(url, context);
  const { transformSync } = await import("esbuild");
  const { code } = transformSync(readFileSync(fileURLToPath(url), "utf-8"), { loader: "ts", target: "es2022" });
  return { format: "module", shortCircuit: true, source: code };
}
