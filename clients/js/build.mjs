/**
 * Builds what pages load: newsfabric.mjs (an ES module) and newsfabric.js (a plain script, `newsfabric.connect`); and
 * newsfabric.cjs, for `require()`.
 *
 *   node build.mjs           writes them to dist/, for npm, and the first two to newsfabric/static, where frontdesks have
 *                            them from; their types to dist/newsfabric.d.ts and dist/newsfabric.d.cts
 *   node build.mjs --types   writes the types alone
 *   node build.mjs --check   says whether those that are there are what the sources give; prints sizes as JSON
 *
 * The built files are in the repository, so that a wheel, and a world, can be made without Node, and the package be
 * installed from its folder.
 */

import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { buildSync } from "esbuild";

const here = (path) => new URL(path, import.meta.url);
const { version } = JSON.parse(readFileSync(here("package.json"), "utf-8"));

const OUTPUTS = {
  "newsfabric.mjs": { format: "esm" },
  "newsfabric.js": { format: "iife", globalName: "newsfabric" },
  "newsfabric.cjs": { format: "cjs" },
};
const SERVED = ["newsfabric.mjs", "newsfabric.js"];
const TYPES = ["newsfabric.d.ts", "newsfabric.d.cts"];

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

/** The types of what src/index.ts exports: its declarations and those of src/api.ts, in one file that imports nothing. */
async function declarations() {
  const { default: ts } = await import("typescript");
  const { config } = ts.readConfigFile(here("tsconfig.json").pathname, ts.sys.readFile);
  const how = { ...config.compilerOptions, noEmit: false, declaration: true, emitDeclarationOnly: true, stripInternal: true };
  const { options } = ts.convertCompilerOptionsFromJson(how, here(".").pathname);
  const emitted = new Map();
  ts.createProgram([here("src/index.ts").pathname], options).emit(undefined, (path, text) => emitted.set(path.split("/").at(-1), text));
  const own = ["index.d.ts", "api.d.ts"].map((name) => emitted.get(name).replace(/^(import|export \*) .*\n/gm, ""));
  return `${own.join("\n")}\n/** The plain script newsfabric.js makes this global. */\nexport as namespace newsfabric;\n`;
}

async function writeTypes() {
  mkdirSync(here("dist/"), { recursive: true });
  const types = await declarations();
  for (const name of TYPES) writeFileSync(here(`dist/${name}`), types);
}

const [mode] = process.argv.slice(2);
if (mode === "--types") {
  await writeTypes();
} else {
  const built = Object.entries(OUTPUTS).map(([name, options]) => [name, build(options)]);
  const sizes = Object.fromEntries(built.map(([name, code]) => [name, gzipSync(code, { level: 9 }).length]));
  const written = built.flatMap(([name, code]) => [["dist/", name, code], ...(SERVED.includes(name) ? [["../../newsfabric/static/", name, code]] : [])]);
  if (mode === "--check") {
    const types = Buffer.from(await declarations());
    const all = [...written, ...TYPES.map((name) => ["dist/", name, types])];
    const stale = all.filter(([folder, name, code]) => !existsSync(here(folder + name)) || !code.equals(readFileSync(here(folder + name))));
    console.log(JSON.stringify({ stale: stale.map(([folder, name]) => folder + name), gzipped: sizes }));
  } else {
    await writeTypes();
    for (const [folder, name, code] of written) writeFileSync(here(folder + name), code);
    for (const [name, code] of built) console.log(`${name}: ${code.length} bytes, ${sizes[name]} gzipped`);
  }
}
