/**
 * The places of all parts on the map, from the document and a width alone. No DOM.
 *
 * Regions stand in pairs: their clusters at the gutter between them, their boxes outside. So shovels
 * between regions cross the gutter, and shovels to boxes fan out. On a narrow screen regions stand in
 * one column. Lengths are in CSS pixels.
 */

/** @import {BoardDocument, Region, Cluster, Box, Shovel, ClusterNode} from "./board-document.js" */

/** @typedef {{x: number, y: number}} Point */
/** @typedef {{x: number, y: number, width: number, height: number}} Rect */
/** @typedef {Rect & {region: Region, mirrored: boolean, hidden: number}} PlacedRegion */
/** @typedef {Rect & {key: string, label: string, region: string, nodes: (Point & {node: ClusterNode})[]}} PlacedCluster */
/** @typedef {Rect & {key: string, box: Box, region: string, mirrored: boolean, labelled: boolean}} PlacedBox */
/** @typedef {{key: string, shovel: Shovel, region: string, path: string, arrow: string, thin: boolean}} PlacedShovel */
/** @typedef {{width: number, height: number, regions: PlacedRegion[], clusters: PlacedCluster[], boxes: PlacedBox[], shovels: PlacedShovel[]}} Layout */

const TWO_COLUMNS = 860;
const HEAD = 58;
const PAD = 16;
const ROW_GAP = 34;
const CLUSTER = { width: 104, height: 74 };
const CLUSTER_GAP = 40;
const BODY = 300;
const LEAST = 240;
const PITCH = { least: 9, most: 30 };
/** More boxes than these are shown in words: a line each would be thinner than a pixel. */
export const MAX_DRAWN = 96;
const MAX_SHOVELS_OF_A_BOX = 4;
const STEP = 7;

/**
 * @param {BoardDocument} document
 * @param {number} width
 * @returns {Layout}
 */
export function layout({ regions }, width) {
  const columns = width >= TWO_COLUMNS && regions.length > 1 ? 2 : 1;
  const gutter = columns === 2 ? Math.max(96, Math.min(170, width * 0.12)) : 0;
  const left = columns === 1 && regions.length > 1 ? 22 : 0;
  const panelWidth = (width - gutter - left) / columns;
  /** @type {Layout} */
  const made = { width, height: 0, regions: [], clusters: [], boxes: [], shovels: [] };
  let y = 0;
  for (let first = 0; first < regions.length; first += columns) {
    const row = regions.slice(first, first + columns);
    const height = Math.max(...row.map(heightOf));
    row.forEach((region, column) => {
      const x = left + column * (panelWidth + gutter);
      place(made, region, { x, y, width: panelWidth, height }, columns === 2 && column === 0);
    });
    y += height + ROW_GAP;
  }
  made.height = Math.max(0, y - ROW_GAP);
  link(made, columns);
  return made;
}

/** @param {Region} region */
const clustersOf = (region) => {
  const known = region.clusters.map((cluster) => cluster);
  const seen = new Set(known.map(({ name }) => name));
  for (const { runs_on: name } of region.shovels) {
    // A cluster that only its shovels tell of: its nodes aren't known.
    if (name.startsWith(`${region.name}/`) && !seen.has(name) && known.length < 6) {
      seen.add(name);
      known.push({ name, nodes: [] });
    }
  }
  return known.sort((a, b) => rank(a) - rank(b));
};

/** @param {Cluster} cluster the core below what feeds it */
const rank = ({ name }) => (name.endsWith("/core") ? 1 : 0);

/** @param {number} boxes */
const pitchOf = (boxes) => Math.max(PITCH.least, Math.min(PITCH.most, BODY / Math.max(1, boxes)));

/** @param {Region} region */
function heightOf(region) {
  const boxes = Math.min(region.boxes.length, MAX_DRAWN);
  const clusters = clustersOf(region).length;
  const stack = clusters * CLUSTER.height + Math.max(0, clusters - 1) * CLUSTER_GAP;
  return HEAD + Math.max(stack, boxes * pitchOf(boxes), LEAST) + PAD;
}

/** @param {Layout} made @param {Region} region @param {Rect} at @param {boolean} mirrored */
function place(made, region, at, mirrored) {
  const drawn = drawnBoxes(region.boxes);
  made.regions.push({ ...at, region, mirrored, hidden: region.boxes.length - drawn.length });
  const top = at.y + HEAD;
  const body = at.height - HEAD - PAD;
  placeClusters(made, region, { x: at.x, y: top, width: at.width, height: body }, mirrored);
  placeBoxes(made, region.name, drawn, { x: at.x, y: top, width: at.width, height: body }, mirrored);
}

/** @param {Box[]} boxes @returns {Box[]} those that aren't ready first, if not all can be drawn */
function drawnBoxes(boxes) {
  if (boxes.length <= MAX_DRAWN) return boxes;
  const troubled = boxes.filter(({ state }) => state !== "ready");
  const chosen = new Set([...troubled, ...boxes].slice(0, MAX_DRAWN));
  return boxes.filter((box) => chosen.has(box));
}

/** @param {Layout} made @param {Region} region @param {Rect} body @param {boolean} mirrored */
function placeClusters(made, region, body, mirrored) {
  const clusters = clustersOf(region);
  const x = mirrored ? body.x + body.width - CLUSTER.width - PAD : body.x + PAD;
  const spare = body.height - clusters.length * CLUSTER.height;
  const gap = Math.min(CLUSTER_GAP * 2, spare / (clusters.length + 1));
  const height = clusters.length * CLUSTER.height + (clusters.length - 1) * gap;
  clusters.forEach((cluster, n) => {
    const y = body.y + (body.height - height) / 2 + n * (CLUSTER.height + gap);
    const nodes = cluster.nodes.slice(0, 7).map((node, m, all) => ({
      node,
      x: x + CLUSTER.width / 2 + (m - (all.length - 1) / 2) * 15,
      y: y + 52,
    }));
    const label = cluster.name.slice(cluster.name.indexOf("/") + 1);
    made.clusters.push({ key: cluster.name, label, region: region.name, x, y, ...CLUSTER, nodes });
  });
}

/** @param {Layout} made @param {string} region @param {Box[]} boxes @param {Rect} body @param {boolean} mirrored */
function placeBoxes(made, region, boxes, body, mirrored) {
  const pitch = pitchOf(boxes.length);
  const width = Math.max(60, Math.min(body.width * 0.46, body.width - CLUSTER.width - PAD * 2 - 70));
  const x = mirrored ? body.x + PAD : body.x + body.width - PAD - width;
  const y = body.y + (body.height - boxes.length * pitch) / 2;
  boxes.forEach((box, n) => {
    const height = Math.min(18, pitch - 2);
    const at = { x, y: y + n * pitch + (pitch - height) / 2, width, height };
    made.boxes.push({ key: box.name, box, region, mirrored, labelled: height >= 14, ...at });
  });
}

/* ---- Shovels ----------------------------------------------------------------------------------- */

/** @param {Layout} made @param {number} columns */
function link(made, columns) {
  const clusters = new Map(made.clusters.map((cluster) => [cluster.key, cluster]));
  const boxes = new Map(made.boxes.map((box) => [box.key, box]));
  const sides = new Map(made.regions.map(({ region, mirrored }) => [region.name, mirrored]));
  /** @type {Map<string, Shovel[]>} */
  const bundles = new Map();
  for (const { region } of made.regions) {
    /** @type {Map<string, number>} */
    const ofBox = new Map();
    for (const shovel of region.shovels) {
      const box = boxes.get(shovel.runs_on);
      if (box) {
        const n = ofBox.get(box.key) ?? 0;
        ofBox.set(box.key, n + 1);
        const core = clusters.get(shovel.source) ?? clusters.get(`${region.name}/core`);
        if (core && n < MAX_SHOVELS_OF_A_BOX) made.shovels.push(thread(shovel, core, box, n));
      } else if (clusters.has(shovel.runs_on) && clusters.has(shovel.source)) {
        const key = [shovel.source, shovel.runs_on].sort().join(" ");
        bundles.set(key, [...(bundles.get(key) ?? []), shovel]);
      }
    }
  }
  for (const bundle of bundles.values()) {
    bundle.sort((a, b) => (a.source < b.source ? -1 : a.source > b.source ? 1 : 0));
    bundle.forEach((shovel, n) => {
      const from = /** @type {PlacedCluster} */ (clusters.get(shovel.source));
      const to = /** @type {PlacedCluster} */ (clusters.get(shovel.runs_on));
      const shift = (n - (bundle.length - 1) / 2) * STEP;
      const region = to.region;
      const curve =
        from.region === to.region
          ? inside(from, to, shift)
          : across(from, to, shift, sides.get(from.region) === true, sides.get(to.region) === true, columns);
      made.shovels.push({ key: shovel.key, shovel, region, path: drawn(curve), arrow: arrowOn(curve), thin: false });
    });
  }
}

/** @typedef {[Point, Point, Point, Point]} Curve */

/** @param {number} n */
const round = (n) => Math.round(n * 10) / 10;

/** @param {Curve} curve */
const drawn = ([a, b, c, d]) =>
  `M${round(a.x)} ${round(a.y)}C${round(b.x)} ${round(b.y)} ${round(c.x)} ${round(c.y)} ${round(d.x)} ${round(d.y)}`;

/** From the core to a box; all of a box's lie side by side. @param {Shovel} shovel @param {PlacedCluster} core @param {PlacedBox} box @param {number} n @returns {PlacedShovel} */
function thread(shovel, core, box, n) {
  const start = box.mirrored ? core.x : core.x + core.width;
  const end = box.mirrored ? box.x + box.width : box.x;
  const y = box.y + box.height / 2 + (n - 1) * Math.min(2.4, box.height / 4);
  const spread = core.y + 12 + (core.height - 24) * 0.5 + (y - core.y - core.height / 2) * 0.12;
  const from = { x: start, y: Math.max(core.y + 6, Math.min(core.y + core.height - 6, spread)) };
  const middle = (start + end) / 2;
  /** @type {Curve} */
  const curve = [from, { x: middle, y: from.y }, { x: middle, y }, { x: end, y }];
  return { key: shovel.key, shovel, region: box.region, path: drawn(curve), arrow: "", thin: true };
}

/** Between two clusters of a region, which stand above each other. @param {PlacedCluster} from @param {PlacedCluster} to @param {number} shift @returns {Curve} */
function inside(from, to, shift) {
  const down = from.y < to.y;
  const x = from.x + from.width / 2 + shift * 1.4;
  const start = { x, y: down ? from.y + from.height : from.y };
  const end = { x, y: down ? to.y : to.y + to.height };
  const third = (end.y - start.y) / 3;
  return [start, { x, y: start.y + third }, { x, y: end.y - third }, end];
}

/** From region to region. @param {PlacedCluster} from @param {PlacedCluster} to @param {number} shift @param {boolean} fromLeft @param {boolean} toLeft @param {number} columns @returns {Curve} */
function across(from, to, shift, fromLeft, toLeft, columns) {
  const start = { x: fromLeft ? from.x + from.width : from.x, y: from.y + from.height / 2 + shift };
  const end = { x: toLeft ? to.x + to.width : to.x, y: to.y + to.height / 2 + shift };
  // On one side of the gutter, or in one column, a curve leaves to the side and comes back.
  const bulge = columns === 1 ? -30 + shift * 0.8 : 70 + shift;
  const reach = fromLeft === toLeft ? bulge : Math.abs(end.x - start.x) / 2;
  const out = columns === 1 ? reach : fromLeft ? reach : -reach;
  const back = columns === 1 ? reach : toLeft ? reach : -reach;
  return [start, { x: start.x + out, y: start.y }, { x: end.x + back, y: end.y }, end];
}

const HEAD_AT = 0.62;

/** @param {Curve} curve @returns {string} a chevron along the way that things go */
function arrowOn([a, b, c, d]) {
  const t = HEAD_AT;
  const u = 1 - t;
  /** @param {"x" | "y"} k */
  const at = (k) => u ** 3 * a[k] + 3 * u * u * t * b[k] + 3 * u * t * t * c[k] + t ** 3 * d[k];
  /** @param {"x" | "y"} k */
  const slope = (k) => 3 * u * u * (b[k] - a[k]) + 6 * u * t * (c[k] - b[k]) + 3 * t * t * (d[k] - c[k]);
  const length = Math.hypot(slope("x"), slope("y")) || 1;
  const [x, y, dx, dy] = [at("x"), at("y"), slope("x") / length, slope("y") / length];
  /** @param {number} along @param {number} aside */
  const point = (along, aside) => `${round(x + dx * along - dy * aside)} ${round(y + dy * along + dx * aside)}`;
  return `M${point(-4, 4)}L${point(3, 0)}L${point(-4, -4)}`;
}

/** @param {number | null} rate messages a second @returns {number} of a line, 1 to 5 px */
export const thickness = (rate) => (rate === null ? 1.2 : Math.min(5, 1 + Math.log10(1 + rate) * 0.9));
