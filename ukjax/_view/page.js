// Everything the page shows: instants t, and positions (instants, points, dimensions) relative to the centre of all;
// bodies with edges (points, 3) in their own frame and poses (instants, 3, 4), each the columns p and R.
const motion = JSON.parse(document.getElementById("motion").textContent);
const numbers = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const positions = numbers(motion.positions);
const bodies = motion.bodies.map((body) => ({ edges: numbers(body.edges), poses: numbers(body.poses) }));
const { t, dimensions } = motion;
const isSpatial = dimensions === 3;
const first = t[0];
const last = t[t.length - 1];
const stride = positions.length / t.length;

const element = (id) => document.getElementById(id);
const canvas = element("canvas");
const pen = canvas.getContext("2d");

// ---- where things are

// The instants before and after `time`, and how far it is between them.
function between(time) {
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

function pointAt(instant, point) {
  const from = instant.low * stride + point * dimensions;
  const to = instant.high * stride + point * dimensions;
  const mixed = (k) => positions[from + k] * (1 - instant.part) + positions[to + k] * instant.part;
  return [mixed(0), mixed(1), isSpatial ? mixed(2) : 0];
}

const reach = Math.max(Math.hypot(...motion.half), 1e-9);
const camera = {};

function lookFromTheStart() {
  Object.assign(camera, { azimuth: -1.01, elevation: 0.42, zoom: 1, right: 0, up: 0 });
}

// Pixels per metre: all poses fit, however they are turned.
function scale() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const room = isSpatial
    ? Math.min(width, height) / (2 * reach)
    : Math.min(width / Math.max(2 * motion.half[0], 0.2 * reach), height / Math.max(2 * motion.half[1], 0.2 * reach));
  return 0.86 * camera.zoom * room;
}

// How a point comes to the canvas, in parallel projection: x, y in pixels, and how near the eye it is.
function projection() {
  const s = scale();
  const [x0, y0] = [canvas.clientWidth / 2 + camera.right, canvas.clientHeight / 2 + camera.up];
  if (!isSpatial) return ([x, y]) => [x0 + s * x, y0 - s * y, 0];
  const [sinA, cosA] = [Math.sin(camera.azimuth), Math.cos(camera.azimuth)];
  const [sinE, cosE] = [Math.sin(camera.elevation), Math.cos(camera.elevation)];
  return ([x, y, z]) => {
    const outwards = cosA * x + sinA * y;
    return [x0 + s * (cosA * y - sinA * x), y0 - s * (cosE * z - sinE * outwards), cosE * outwards + sinE * z];
  };
}

// ---- drawing

// Made anew for every picture.
let seen;
let colours;

function coloursOfThePage() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["paper", "link", "trace", "edge", "grid"].map((x) => [x, style.getPropertyValue(`--${x}`)]));
}

function stroke(points, style, width) {
  pen.strokeStyle = style;
  pen.lineWidth = width;
  pen.beginPath();
  let isDown = false;
  for (const point of points) {
    const [x, y] = point;
    if (!Number.isFinite(x) || !Number.isFinite(y)) isDown = false;
    else if (isDown) pen.lineTo(x, y);
    else {
      pen.moveTo(x, y);
      isDown = true;
    }
  }
  pen.stroke();
}

function text(words, x, y, alignment = "left") {
  pen.fillStyle = colours.edge;
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = alignment;
  pen.fillText(words, x, y);
}

// 1, 2 or 5 times a power of ten, so that about eight fit.
function spacingOf(size) {
  const rough = size / 8;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

const plain = (number) => String(Number(number.toPrecision(6))).replace("-", "−");

function drawPaper() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const s = scale();
  const spacing = spacingOf(Math.max(width, height) / s);
  const origin = seen([-motion.centre[0], -motion.centre[1], 0]);
  for (let i = Math.ceil(-origin[0] / (s * spacing)); origin[0] + i * s * spacing < width; i++) {
    const x = origin[0] + i * s * spacing;
    stroke([[x, 0], [x, height]], colours.grid, i === 0 ? 2 : 1);
    text(plain(i * spacing), x + 3, height - 4);
  }
  for (let i = Math.ceil((origin[1] - height) / (s * spacing)); origin[1] - i * s * spacing > 0; i++) {
    const y = origin[1] - i * s * spacing;
    stroke([[0, y], [width, y]], colours.grid, i === 0 ? 2 : 1);
    text(`${plain(i * spacing)} m`, 4, y - 3);
  }
}

function drawFloor() {
  const spacing = spacingOf(2 * reach);
  const range = [0, 1].map((k) => {
    const [low, high] = [motion.centre[k] - motion.half[k], motion.centre[k] + motion.half[k]];
    return [Math.floor(low / spacing - 0.5), Math.ceil(high / spacing + 0.5)];
  });
  const onFloor = (i, j) => seen([i * spacing - motion.centre[0], j * spacing - motion.centre[1], -motion.half[2]]);
  for (let i = range[0][0]; i <= range[0][1]; i++) {
    stroke([onFloor(i, range[1][0]), onFloor(i, range[1][1])], colours.grid, i === 0 ? 2 : 1);
  }
  for (let j = range[1][0]; j <= range[1][1]; j++) {
    stroke([onFloor(range[0][0], j), onFloor(range[0][1], j)], colours.grid, j === 0 ? 2 : 1);
  }
  const corner = [range[0][0] * spacing - motion.centre[0], range[1][0] * spacing - motion.centre[1], -motion.half[2]];
  ["x", "y", "z"].forEach((name, k) => {
    const tip = corner.map((x, axis) => x + (axis === k ? spacing : 0));
    stroke([seen(corner), seen(tip)], colours.edge, 1.5);
    text(name, seen(tip)[0] + 4, seen(tip)[1]);
  });
  text(`grid ${plain(spacing)} m`, canvas.clientWidth - 10, canvas.clientHeight - 6, "right");
}

const links = [];
{
  let start = 0;
  for (const link of motion.links) {
    links.push({ start, ...link });
    start += link.points;
  }
}

const lineAt = (instant, line) =>
  Array.from({ length: line.points }, (_, k) => seen(pointAt(instant, line.start + k)));

function edgesAt(instant, { edges, poses }) {
  const entry = (k) => poses[12 * instant.low + k] * (1 - instant.part) + poses[12 * instant.high + k] * instant.part;
  const pose = Array.from({ length: 12 }, (_, k) => entry(k));
  return Array.from({ length: edges.length / 3 }, (_, k) => {
    const [x, y, z] = edges.subarray(3 * k, 3 * k + 3);
    return seen([0, 4, 8].map((row) => pose[row] + pose[row + 1] * x + pose[row + 2] * y + pose[row + 3] * z));
  });
}

function drawTrace(instant, link) {
  const end = link.start + link.points - 1;
  const trace = [];
  for (let i = 0; i <= instant.low; i++) trace.push(seen(pointAt({ low: i, high: i, part: 0 }, end)));
  trace.push(seen(pointAt(instant, end)));
  stroke(trace, colours.trace, 1.2);
}

function drawLink(points, link) {
  stroke(points, colours.link, 3);
  if (!link.joints) return;
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
    pen.beginPath();
    pen.arc(x, y, 4, 0, 2 * Math.PI);
    pen.fillStyle = colours.paper;
    pen.fill();
    pen.lineWidth = 1.8;
    pen.stroke();
  }
}

const nearness = (points) => points.reduce((sum, point) => sum + point[2], 0) / points.length;

function draw() {
  const density = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth * density, canvas.clientHeight * density];
  if (canvas.width !== Math.round(width) || canvas.height !== Math.round(height)) {
    [canvas.width, canvas.height] = [Math.round(width), Math.round(height)];
  }
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  pen.lineJoin = pen.lineCap = "round";
  [seen, colours] = [projection(), coloursOfThePage()];
  const instant = between(state.time);
  if (isSpatial) drawFloor();
  else drawPaper();
  for (const body of bodies) stroke(edgesAt(instant, body), colours.edge, 0.8);
  if (element("traces").checked) for (const link of links) drawTrace(instant, link);
  links
    .map((link) => ({ link, points: lineAt(instant, link) }))
    .sort((a, b) => nearness(a.points) - nearness(b.points))
    .forEach(({ link, points }) => drawLink(points, link));
  const digits = Math.min(9, Math.max(2, 2 - Math.floor(Math.log10(Math.max(last - first, 1e-9)))));
  element("clock").textContent = `t = ${state.time.toFixed(digits)} s`;
  element("when").value = last > first ? (state.time - first) / (last - first) : 0;
  element("play").textContent = state.isPlaying ? "❚❚" : "▸";
}

// ---- playing

const state = { time: first, isPlaying: false, before: null };

const round = (factor) => {
  const power = 10 ** Math.floor(Math.log10(factor));
  return power * [1, 2, 5, 10].find((x) => x * power >= factor * 0.999);
};
const duration = last - first;
const usual = duration >= 2 && duration <= 30 ? 1 : round(Math.max(duration, 1e-9) / 10);
for (const times of [0.1, 0.25, 0.5, 1, 2, 4]) {
  const option = document.createElement("option");
  option.value = times * usual;
  option.textContent = `${plain(times * usual)} ×`;
  option.selected = times === 1;
  element("speed").append(option);
}

function goOn(now) {
  if (!state.isPlaying) return;
  if (state.before !== null) {
    state.time += ((now - state.before) / 1000) * Number(element("speed").value);
    if (state.time > last) state.time = first;
  }
  state.before = now;
  draw();
  requestAnimationFrame(goOn);
}

function play(isPlaying) {
  Object.assign(state, { isPlaying, before: null });
  draw();
  if (isPlaying) requestAnimationFrame(goOn);
}

function goTo(time) {
  state.time = Math.min(last, Math.max(first, time));
  play(false);
}

element("play").addEventListener("click", () => play(!state.isPlaying));
element("when").addEventListener("input", (event) => goTo(first + Number(event.target.value) * (last - first)));
element("traces").addEventListener("change", draw);
document.addEventListener("keydown", (event) => {
  if (["SELECT", "INPUT", "BUTTON"].includes(event.target.tagName)) return;
  const { low, high, part } = between(state.time);
  if (event.key === " ") play(!state.isPlaying);
  else if (event.key === "ArrowRight") goTo(t[part < 1 ? high : Math.min(high + 1, t.length - 1)]);
  else if (event.key === "ArrowLeft") goTo(t[part > 0 ? low : Math.max(low - 1, 0)]);
  else return;
  event.preventDefault();
});

// ---- looking

canvas.addEventListener("pointerdown", (event) => canvas.setPointerCapture(event.pointerId));
canvas.addEventListener("pointermove", (event) => {
  if (!event.buttons) return;
  if (isSpatial && !event.shiftKey) {
    camera.azimuth -= event.movementX * 0.008;
    camera.elevation = Math.min(1.57, Math.max(-1.57, camera.elevation + event.movementY * 0.008));
  } else {
    camera.right += event.movementX;
    camera.up += event.movementY;
  }
  draw();
});
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    camera.zoom = Math.min(1000, Math.max(0.05, camera.zoom * Math.exp(-event.deltaY * 0.0012)));
    draw();
  },
  { passive: false },
);
canvas.addEventListener("dblclick", () => {
  lookFromTheStart();
  draw();
});

lookFromTheStart();
element("ended").textContent = motion.ended;
element("hint").textContent = `drag to ${isSpatial ? "turn, with shift to " : ""}move, wheel to zoom`;
new ResizeObserver(draw).observe(canvas);
play(last > first && !matchMedia("(prefers-reduced-motion: reduce)").matches);
