const element = (id) => document.getElementById(id);
const canvas = element("canvas");
const pen = canvas.getContext("2d");

// The motion that the page shows. Positions are relative to the centre of the motion, in metres:
// positions (samples, points, dimensions) of the lines; touching (samples, gaps, dimensions), NaN where a gap is open;
// bodies with edges (points, 3), vertices (k, 3) and faces (f, 3) in the body frame, and poses (samples, 3, 4), whose
// columns are p and R; arrows with `at` and `vector` (samples, count, dimensions); ghosts (members, samples, points,
// dimensions); histories (samples, columns); centres (samples, dimensions) of what is seen at each sample.
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const numbers = (text) => new Float32Array(bytes(text));
const integers = (text) => new Uint32Array(bytes(text));

let motion;
let isSpatial;
let first;
let last;

// The shape of a body: that of the motion before where none is written.
function shapeOf(body, k) {
  if (body.vertices === undefined) {
    const { shape } = motion.bodies[k];
    return { shape };
  }
  return { shape: { edges: numbers(body.edges), vertices: numbers(body.vertices), faces: integers(body.faces) } };
}

// Decode a motion and make it the one that is shown.
function load(written) {
  let start = 0;
  const links = written.links.map((link) => {
    start += link.points;
    return { ...link, start: start - link.points };
  });
  motion = {
    ...written,
    links,
    stride: start * written.dimensions,
    positions: numbers(written.positions),
    touching: numbers(written.touching),
    centres: numbers(written.centres),
    bodies: written.bodies.map((body, k) => ({ ...shapeOf(body, k), ...body, poses: numbers(body.poses) })),
    arrows: written.arrows.map((each) => ({ ...each, at: numbers(each.at), vector: numbers(each.vector) })),
    ghosts: written.ghosts && { ...written.ghosts, positions: numbers(written.ghosts.positions) },
    histories: written.histories.map((each) => ({ ...each, values: numbers(each.values) })),
  };
  isSpatial = motion.dimensions === 3;
  first = motion.t[0];
  last = motion.t[motion.t.length - 1];
}

// The samples before and after `time`, and the fraction of the interval between them at `time`.
function bracket(time) {
  const t = motion.t;
  let low = 0;
  let high = t.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (t[middle] <= time) low = middle;
    else high = middle;
  }
  const gap = t[high] - t[low];
  return { low, high, part: gap > 0 ? Math.min(1, Math.max(0, (time - t[low]) / gap)) : 0 };
}

const nearest = ({ low, high, part }) => (part < 0.5 ? low : high);

// Entry `index` of each sample's row of `values`, `stride` numbers long, as a point: z is 0 in the plane.
function pointOf(values, stride, index, { low, high, part }) {
  const from = low * stride + index * motion.dimensions;
  const to = high * stride + index * motion.dimensions;
  const interpolated = (k) => values[from + k] * (1 - part) + values[to + k] * part;
  return [interpolated(0), interpolated(1), isSpatial ? interpolated(2) : 0];
}

const pointAt = (instant, index) => pointOf(motion.positions, motion.stride, index, instant);

const lineAt = (instant, line) => Array.from({ length: line.points }, (_, k) => pointAt(instant, line.start + k));

const endOf = (line) => line.start + line.points - 1;

function ghostAt(instant, member, line) {
  const size = motion.stride * motion.t.length;
  const positions = motion.ghosts.positions.subarray(member * size, (member + 1) * size);
  return Array.from({ length: line.points }, (_, k) => pointOf(positions, motion.stride, line.start + k, instant));
}

// Rows of (R | p) of a body.
function poseAt(instant, { poses }) {
  const entry = (k) => poses[12 * instant.low + k] * (1 - instant.part) + poses[12 * instant.high + k] * instant.part;
  return [0, 4, 8].map((row) => [entry(row + 1), entry(row + 2), entry(row + 3), entry(row)]);
}

function edgesAt(instant, body) {
  const pose = poseAt(instant, body);
  return Array.from({ length: body.shape.edges.length / 3 }, (_, k) => {
    const [x, y, z] = body.shape.edges.subarray(3 * k, 3 * k + 3);
    return pose.map(([a, b, c, p]) => a * x + b * y + c * z + p);
  });
}

// The points that touch at the nearest sample.
function touchingAt(instant) {
  const { touching, dimensions } = motion;
  const size = touching.length / motion.t.length;
  const start = nearest(instant) * size;
  const points = [];
  for (let k = start; k < start + size; k += dimensions) {
    if (Number.isFinite(touching[k])) points.push([touching[k], touching[k + 1], isSpatial ? touching[k + 2] : 0]);
  }
  return points;
}

// Pairs of the point and the vector of each arrow that is not zero.
function arrowsAt(instant, arrow) {
  const stride = arrow.count * motion.dimensions;
  return Array.from({ length: arrow.count }, (_, k) => [
    pointOf(arrow.at, stride, k, instant),
    pointOf(arrow.vector, stride, k, instant),
  ]).filter(([at, vector]) => at.every(Number.isFinite) && Math.hypot(...vector) > 1e-6 * arrow.largest);
}
