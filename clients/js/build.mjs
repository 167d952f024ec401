/**
 * Builds the files that pages load: newsfabric.mjs (an ES module) and newsfabric.js (a plain script,
 * `newsfabric.connect`); and newsfabric.cjs, for `require()`, and the same of newsfabric/react.
 *
 *   node build.mjs           writes them to dist/, for npm, and the first two to newsfabric/static, where frontdesks have
 *                            them from; their types to dist/*.d.ts and dist/*.d.cts
 *   node build.mjs --types   writes the types alone
 * node build.mjs --check   reports whether the files match the sources; prints sizes as JSON
 *
 * The built files are in the repository, so that a wheel, and a world, can be made without Node, and the package be
 * installed from its folder.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { buildSync } from "esbuild";

const here = (path) => new URL(path, import.meta.url);
const { version } = JSON.parse(readFileSync(here("package.json"), "utf-8"));

// Hooks run where the page is read: the first line is for Next.js.
const REACT = { entryPoints: [here("src/react.ts").pathname], external: ["react"], banner: { js: `"use client";\n/* newsfabric ${version}, Apache-2.0 */` } };

const OUTPUTS = {
  "newsfabric.mjs": { format: "esm" },
  "newsfabric.js": { format: "iife", globalName: "newsfabric" },
  "newsfabric.cjs": { format: "cjs" },
  "react.mjs": { format: "esm", ...REACT },
  "react.cjs": { format: "cjs", ...REACT },
};
const SERVED = ["newsfabric.mjs", "newsfabric.js"];

function build(options) {
  const { outputFiles } = buildSync({
    entryPoints: [here("src/index.ts").pathname],
    bundle: true,
    minify: true,
    write: false,
    // Private methods and fields, AbortSignal.timeout() and Web Locks: browsers since 2022.
    target: "es2022",
    banner: { js: `/* newsfabric ${version}, Apache-2.0 */` },
    ...options,
  });
  return Buffer.from(outputFiles[0].contents);
}

/**
 * The types, by the name of their file. Of what src/index.ts exports: its declarations and those of src/api.ts, in one file
 * that imports nothing; of src/react.ts, which takes them from there.
 */
async function declarations() {
  const { default: ts } = await import("typescript");
  const { config } = ts.readConfigFile(here("tsconfig.json").pathname, ts.sys.readFile);
  const how = { ...config.compilerOptions, noEmit: false, declaration: true, emitDeclarationOnly: true, stripInternal: true };
  const { options } = ts.convertCompilerOptionsFromJson(how, here(".").pathname);
  const emitted = new Map();
  ts.createProgram(["src/index.ts", "src/react.ts", "src/react-module.d.ts"].map((path) => here(path).pathname), options).emit(undefined, (path, text) => emitted.set(path.split("/").at(-1), text));
  const own = ["index.d.ts", "api.d.ts"].map((name) => emitted.get(name).replace(/^(import|export \*) .*\n/gm, ""));
  const all = `${own.join("\n")}\n/** The plain script newsfabric.js makes this global. */\nexport as namespace newsfabric;\n`;
  const react = emitted.get("react.d.ts").replace("./api.ts", "newsfabric");
  return [["newsfabric", all], ["react", react]].flatMap(([name, text]) => [[`${name}.d.ts`, text], [`${name}.d.cts`, text]]);
}

async function writeTypes() {
  mkdirSync(here("dist/"), { recursive: true });
  for (const [name, text] of await declarations()) writeFileSync(here(`dist/${name}`), text);
}

const [mode] = process.argv.slice(2);
if (mode === "--types") {
  await writeTypes();
} else {
  const built = Object.entries(OUTPUTS).map(([name, options]) => [name, build(options)]);
  const sizes = Object.fromEntries(built.map(([name, code]) => [name, gzipSync(code, { level: 9 }).length]));
  const written = built.flatMap(([name, code]) => [["dist/", name, code], ...(SERVED.includes(name) ? [["../../newsfabric/static/", name, code]] : [])]);
  if (mode === "--check") {
    const types = (await declarations()).map(([name, text]) => ["dist/", name, Buffer.from(text)]);
    const all = [...written, ...types];
    const stale = all.filter(([folder, name, code]) => !existsSync(here(folder + name)) || !code.equals(readFileSync(here(folder + name))));
    console.log(JSON.stringify({ stale: stale.map(([folder, name]) => folder + name), gzipped: sizes }));
  } else {
    await writeTypes();
    for (const [folder, name, code] of written) writeFileSync(here(folder + name), code);
    for (const [name, code] of built) console.log(`${name}: ${code.length} bytes, ${sizes[name]} gzipped`);
  }
}
