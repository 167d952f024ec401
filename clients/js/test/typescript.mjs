/**
 * Lets tests import src/*.ts in any Node: `node --import ./test/typescript.mjs --test test/*.test.mjs`
 *
 * `import("../src/session.ts?planted=NAME")` has a fault of simulation/faults.mjs in that file, or in those that it imports.
 */

import { readFileSync } from "node:fs";
import { register } from "node:module";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { isMainThread } from "node:worker_threads";

import { plant } from "./simulation/faults.mjs";

if (isMainThread) register(import.meta.url);

export async function resolve(specifier, context, next) {
  const resolved = await next(specifier, context);
  const { search } = new URL(context.parentURL ?? "file:///");
  return search && resolved.url.endsWith(".ts") ? { ...resolved, url: resolved.url + search } : resolved;
}

export async function load(url, context, next) {
  const { pathname, searchParams } = new URL(url);
  if (!pathname.endsWith(".ts")) return next(url, context);
  const { transformSync } = await import("esbuild");
  const path = fileURLToPath(url);
  const written = readFileSync(path, "utf-8");
  const planted = searchParams.get("planted");
  const { code } = transformSync(planted ? plant(planted, basename(path), written) : written, { loader: "ts", target: "es2022" });
  return { format: "module", shortCircuit: true, source: code };
}
