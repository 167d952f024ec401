/**
 * Builds what pages load: newsfabric.mjs (an ES module) and newsfabric.js (a plain script, `newsfabric.connect`).
 *
 *   node build.mjs           writes them to dist/, for npm, and to newsfabric/static, where frontdesks have them from
 *   node build.mjs --check   says whether those in newsfabric/static are what the sources give; prints sizes as JSON
 *
 * The built files are in the repository, so that a wheel, and a world, can be made without Node.
 */

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { buildSync } from "esbuild";

const here = (path) => new URL(path, import.meta.url);
const { version } = JSON.parse(readFileSync(here("package.json"), "utf-8"));

const OUTPUTS = {
  "newsfabric.mjs": { format: "esm" },
  "newsfabric.js": { format: "iife", globalName: "newsfabric" },
};

function build(options) {
  const { outputFiles } = buildSync({
    entryPoints: [here("src/index.js").pathname],
    bundle: true,
    minify: true,
    write: false,
    // Private methods and fields, AbortSignal.timeout() and Web Locks: browsers since 2022.
    target: "es2022",
    banner: { js: `/* newsfabric ${version}, Apache-2.0 */` },
    ...options,
  });
  return outputFiles[0].contents;
}

const built = Object.entries(OUTPUTS).map(([name, options]) => [name, Buffer.from(build(options))]);

if (process.argv.includes("--check")) {
  const stale = built.filter(([name, code]) => !code.equals(readFileSync(here(`../../newsfabric/static/${name}`))));
  const sizes = Object.fromEntries(built.map(([name, code]) => [name, gzipSync(code, { level: 9 }).length]));
  console.log(JSON.stringify({ stale: stale.map(([name]) => name), gzipped: sizes }));
} else {
  mkdirSync(here("dist/"), { recursive: true });
  for (const [name, code] of built) {
    for (const folder of ["dist/", "../../newsfabric/static/"]) writeFileSync(here(folder + name), code);
    console.log(`${name}: ${code.length} bytes, ${gzipSync(code, { level: 9 }).length} gzipped`);
  }
  copyFileSync(here("newsfabric.d.ts"), here("dist/newsfabric.d.ts"));
}
