// Data of the page: sample times t; positions (samples, points, dimensions) relative to the centre of the motion;
// points of contact (samples, gaps, dimensions), NaN where a gap is open;
// bodies with edges (points, 3) in the body frame and poses (samples, 3, 4), whose columns are p and R.
const motion = JSON.parse(document.getElementById("motion").textContent);
const numbers = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
const positions = numbers(motion.positions);
const touching = numbers(motion.touching);
const bodies = motion.bodies.map((body) => ({ edges: numbers(body.edges), poses: numbers(body.poses) }));
const { t, dimensions } = motion;
const isSpatial = dimensions === 3;
const first = t[0];
const last = t[t.length - 1];
const stride = positions.length / t.length;

const element = (id) => document.getElementById(id);
const canvas = element("canvas");
const pen = canvas.getContext("2d");

// ---- positions and projection

// The samples before and after `time`, and the fraction of the interval between them at `time`.
function bracket(time) {
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
  const interpolated = (k) => positions[from + k] * (1 - instant.part) + positions[to + k] * instant.part;
  return [interpolated(0), interpolated(1), isSpatial ? interpolated(2) : 0];
}

const sceneRadius = Math.max(Math.hypot(...motion.half), 1e-9);
const camera = {};

function resetCamera() {
  Object.assign(camera, { azimuth: -1.01, elevation: 0.42, zoom: 1, right: 0, up: 0 });
}

// Pixels per metre, such that every pose fits on the canvas for every camera angle.
function scale() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const room = isSpatial
    ? Math.min(width, height) / (2 * sceneRadius)
    : Math.min(width / Math.max(2 * motion.half[0], 0.2 * sceneRadius), height / Math.max(2 * motion.half[1], 0.2 * sceneRadius));
  return 0.86 * camera.zoom * room;
}

// Parallel projection of a point to the canvas: x and y in pixels, and its nearness to the eye.
function projection() {
  const s = scale();
  const [x0, y0] = [canvas.clientWidth / 2 + camera.right, canvas.clientHeight / 2 + camera.up];
  if (!isSpatial) return ([x, y]) => [x0 + s * x, y0 - s * y, 0];
  const [sinA, cosA] = [Math.sin(camera.azimuth), Math.cos(camera.azimuth)];
  const [sinE, cosE] = [Math.sin(camera.elevation), Math.cos(camera.elevation)];
  return ([x, y, z]) => {
    const towardsEye = cosA * x + sinA * y;
    return [x0 + s * (cosA * y - sinA * x), y0 - s * (cosE * z - sinE * towardsEye), cosE * towardsEye + sinE * z];
  };
}

// ---- drawing

// Projection and colours of the current frame, set by draw().
let toCanvas;
let colours;

function pageColours() {
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

function text(label, x, y, alignment = "left") {
  pen.fillStyle = colours.edge;
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = alignment;
  pen.fillText(label, x, y);
}

// Spacing of grid lines: 1, 2 or 5 times a power of ten, about eight per `size`.
function gridSpacing(size) {
  const rough = size / 8;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
}

const formatNumber = (number) => String(Number(number.toPrecision(6))).replace("-", "−");

function drawPlaneGrid() {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const s = scale();
  const spacing = gridSpacing(Math.max(width, height) / s);
  const origin = toCanvas([-motion.centre[0], -motion.centre[1], 0]);
  for (let i = Math.ceil(-origin[0] / (s * spacing)); origin[0] + i * s * spacing < width; i++) {
    const x = origin[0] + i * s * spacing;
    stroke([[x, 0], [x, height]], colours.grid, i === 0 ? 2 : 1);
    text(formatNumber(i * spacing), x + 3, height - 4);
  }
  for (let i = Math.ceil((origin[1] - height) / (s * spacing)); origin[1] - i * s * spacing > 0; i++) {
    const y = origin[1] - i * s * spacing;
    stroke([[0, y], [width, y]], colours.grid, i === 0 ? 2 : 1);
    text(`${formatNumber(i * spacing)} m`, 4, y - 3);
  }
}

function drawFloor() {
  const spacing = gridSpacing(2 * sceneRadius);
  const range = [0, 1].map((k) => {
    const [low, high] = [motion.centre[k] - motion.half[k], motion.centre[k] + motion.half[k]];
    return [Math.floor(low / spacing - 0.5), Math.ceil(high / spacing + 0.5)];
  });
  const floorPoint = (i, j) => toCanvas([i * spacing - motion.centre[0], j * spacing - motion.centre[1], -motion.half[2]]);
  for (let i = range[0][0]; i <= range[0][1]; i++) {
    stroke([floorPoint(i, range[1][0]), floorPoint(i, range[1][1])], colours.grid, i === 0 ? 2 : 1);
  }
  for (let j = range[1][0]; j <= range[1][1]; j++) {
    stroke([floorPoint(range[0][0], j), floorPoint(range[0][1], j)], colours.grid, j === 0 ? 2 : 1);
  }
  const corner = [range[0][0] * spacing - motion.centre[0], range[1][0] * spacing - motion.centre[1], -motion.half[2]];
  ["x", "y", "z"].forEach((name, k) => {
    const tip = corner.map((x, axis) => x + (axis === k ? spacing : 0));
    stroke([toCanvas(corner), toCanvas(tip)], colours.edge, 1.5);
    text(name, toCanvas(tip)[0] + 4, toCanvas(tip)[1]);
  });
  text(`grid ${formatNumber(spacing)} m`, canvas.clientWidth - 10, canvas.clientHeight - 6, "right");
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
  Array.from({ length: line.points }, (_, k) => toCanvas(pointAt(instant, line.start + k)));

function edgesAt(instant, { edges, poses }) {
  const entry = (k) => poses[12 * instant.low + k] * (1 - instant.part) + poses[12 * instant.high + k] * instant.part;
  const pose = Array.from({ length: 12 }, (_, k) => entry(k));
  return Array.from({ length: edges.length / 3 }, (_, k) => {
    const [x, y, z] = edges.subarray(3 * k, 3 * k + 3);
    return toCanvas([0, 4, 8].map((row) => pose[row] + pose[row + 1] * x + pose[row + 2] * y + pose[row + 3] * z));
  });
}

function drawTrace(instant, link) {
  const end = link.start + link.points - 1;
  const trace = [];
  for (let i = 0; i <= instant.low; i++) trace.push(toCanvas(pointAt({ low: i, high: i, part: 0 }, end)));
  trace.push(toCanvas(pointAt(instant, end)));
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

// The points that touch at the nearest sample.
function drawTouching({ low, high, part }) {
  const size = touching.length / t.length;
  const first = (part < 0.5 ? low : high) * size;
  for (let k = first; k < first + size; k += dimensions) {
    const [x, y] = toCanvas([touching[k], touching[k + 1], isSpatial ? touching[k + 2] : 0]);
    if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
    pen.beginPath();
    pen.arc(x, y, 5, 0, 2 * Math.PI);
    pen.fillStyle = colours.trace;
    pen.fill();
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
  [toCanvas, colours] = [projection(), pageColours()];
  const instant = bracket(state.time);
  if (isSpatial) drawFloor();
  else drawPlaneGrid();
  for (const body of bodies) stroke(edgesAt(instant, body), colours.edge, 0.8);
  if (element("traces").checked) for (const link of links) drawTrace(instant, link);
  links
    .map((link) => ({ link, points: lineAt(instant, link) }))
    .sort((a, b) => nearness(a.points) - nearness(b.points))
    .forEach(({ link, points }) => drawLink(points, link));
  drawTouching(instant);
  const digits = Math.min(9, Math.max(2, 2 - Math.floor(Math.log10(Math.max(last - first, 1e-9)))));
  element("clock").textContent = `t = ${state.time.toFixed(digits)} s`;
  element("when").value = last > first ? (state.time - first) / (last - first) : 0;
  element("play").textContent = state.isPlaying ? "❚❚" : "▸";
}

// ---- playing

const state = { time: first, isPlaying: false, previousNow: null };

const roundUp = (factor) => {
  const power = 10 ** Math.floor(Math.log10(factor));
  return power * [1, 2, 5, 10].find((x) => x * power >= factor * 0.999);
};
const duration = last - first;
const defaultSpeed = duration >= 2 && duration <= 30 ? 1 : roundUp(Math.max(duration, 1e-9) / 10);
for (const multiple of [0.1, 0.25, 0.5, 1, 2, 4]) {
  const option = document.createElement("option");
  option.value = multiple * defaultSpeed;
  option.textContent = `${formatNumber(multiple * defaultSpeed)} ×`;
  option.selected = multiple === 1;
  element("speed").append(option);
}

function nextFrame(now) {
  if (!state.isPlaying) return;
  if (state.previousNow !== null) {
    state.time += ((now - state.previousNow) / 1000) * Number(element("speed").value);
    if (state.time > last) state.time = first;
  }
  state.previousNow = now;
  draw();
  requestAnimationFrame(nextFrame);
}

function play(isPlaying) {
  Object.assign(state, { isPlaying, previousNow: null });
  draw();
  if (isPlaying) requestAnimationFrame(nextFrame);
}

function seek(time) {
  state.time = Math.min(last, Math.max(first, time));
  play(false);
}

element("play").addEventListener("click", () => play(!state.isPlaying));
element("when").addEventListener("input", (event) => seek(first + Number(event.target.value) * (last - first)));
element("traces").addEventListener("change", draw);
document.addEventListener("keydown", (event) => {
  if (["SELECT", "INPUT", "BUTTON"].includes(event.target.tagName)) return;
  const { low, high, part } = bracket(state.time);
  if (event.key === " ") play(!state.isPlaying);
  else if (event.key === "ArrowRight") seek(t[part < 1 ? high : Math.min(high + 1, t.length - 1)]);
  else if (event.key === "ArrowLeft") seek(t[part > 0 ? low : Math.max(low - 1, 0)]);
  else return;
  event.preventDefault();
});

// ---- camera

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
  resetCamera();
  draw();
});

resetCamera();
element("ended").textContent = motion.ended;
element("hint").textContent = `drag to ${isSpatial ? "turn, with shift to " : ""}move, wheel to zoom`;
new ResizeObserver(draw).observe(canvas);
play(last > first && !matchMedia("(prefers-reduced-motion: reduce)").matches);
