// What is drawn with the pen of the canvas: all of a motion in the plane; of one in space the words, and everything
// where the browser has no WebGL.
const PALETTE = ["#2f7fb5", "#d98a29", "#4a9d6e", "#b5533c", "#7d6bb0", "#4f9aa5", "#c0568a", "#8a8f3c", "#7a6552", "#5b73c4"];
const ARROWS = ["#c0392b", "#1e8449", "#7d3c98", "#b9770e", "#2471a3", "#117a65", "#a93279", "#6e5b1f"];

let colours;

function pageColours() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    ["paper", "ink", "link", "trace", "edge", "grid"].map((x) => [x, style.getPropertyValue(`--${x}`).trim()]),
  );
}

const bodyColour = (index) => PALETTE[index % PALETTE.length];
const arrowColour = (index) => ARROWS[index % ARROWS.length];
const linkColour = (link) => (link.body >= 0 ? bodyColour(link.body) : colours.link);

// Colour of a number from 0 to 1: blue, green, yellow, red.
function scaleColour(x) {
  const stops = [[43, 77, 158], [42, 157, 143], [233, 196, 76], [204, 61, 49]];
  const at = Math.min(Math.max(x, 0), 1) * (stops.length - 1);
  const k = Math.min(Math.floor(at), stops.length - 2);
  const mixed = stops[k].map((value, i) => Math.round(value + (stops[k + 1][i] - value) * (at - k)));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
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

function dot([x, y], radius, fill) {
  if (!Number.isFinite(x) || !Number.isFinite(y)) return;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = fill;
  pen.fill();
}

function text(label, x, y, alignment = "left", colour = colours.edge, size = 11) {
  pen.fillStyle = colour;
  pen.font = `${size}px system-ui, sans-serif`;
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

function drawPlaneGrid({ s, toCanvas }) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
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

// Lines of the floor below the motion, around what is seen: pairs of ends, with a flag for those through the origin.
function floorLines({ target, radius }) {
  const spacing = gridSpacing(2 * radius);
  const z = -motion.half[2];
  const range = [0, 1].map((k) => {
    const reach = Math.min(motion.half[k], 1.5 * radius);
    const middle = motion.centre[k] + Math.min(Math.max(target[k], -motion.half[k]), motion.half[k]);
    return [Math.floor((middle - reach) / spacing - 0.5), Math.ceil((middle + reach) / spacing + 0.5)];
  });
  const point = (i, j) => [i * spacing - motion.centre[0], j * spacing - motion.centre[1], z];
  const lines = [];
  for (let i = range[0][0]; i <= range[0][1]; i++) {
    lines.push([point(i, range[1][0]), point(i, range[1][1]), i === 0]);
  }
  for (let j = range[1][0]; j <= range[1][1]; j++) {
    lines.push([point(range[0][0], j), point(range[0][1], j), j === 0]);
  }
  return { lines, spacing, corner: point(range[0][0], range[1][0]) };
}

function drawAxes({ toCanvas }, { spacing, corner }) {
  ["x", "y", "z"].forEach((name, k) => {
    const tip = toCanvas(corner.map((x, axis) => x + (axis === k ? spacing : 0)));
    stroke([toCanvas(corner), tip], colours.edge, 1.5);
    text(name, tip[0] + 4, tip[1]);
  });
  text(`grid ${formatNumber(spacing)} m`, canvas.clientWidth - 10, canvas.clientHeight - 6, "right");
}

// The points of a trace up to an instant.
function traceAt(instant, line) {
  const trace = [];
  for (let i = 0; i <= instant.low; i++) trace.push(pointAt({ low: i, high: i, part: 0 }, endOf(line)));
  trace.push(pointAt(instant, endOf(line)));
  return trace;
}

function drawLink(points, link) {
  stroke(points, linkColour(link), 3);
  if (link.points === 1) dot(points[0], 4, colours.trace);
  if (!link.joints) return;
  for (const point of points) {
    dot(point, 4, colours.paper);
    if (!Number.isFinite(point[0])) continue;
    pen.lineWidth = 1.8;
    pen.stroke();
  }
}

// An arrow with one head for a force, with two heads for a moment.
function drawArrow(from, to, colour, heads) {
  stroke([from, to], colour, 2.2);
  const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
  if (length < 3) return;
  const [ux, uy] = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
  const size = Math.min(9, 0.6 * length);
  for (let k = 0; k < heads; k++) {
    const tip = [to[0] - 0.8 * k * size * ux, to[1] - 0.8 * k * size * uy];
    const side = (sign) => [tip[0] - size * ux + sign * 0.45 * size * uy, tip[1] - size * uy - sign * 0.45 * size * ux];
    stroke([side(1), tip, side(-1)], colour, 2.2);
  }
}

const nearness = (points) => points.reduce((sum, point) => sum + point[2], 0) / points.length;

// Everything but the floor, by the pen.
function drawFlat(instant, view, shown) {
  const { toCanvas } = view;
  const onCanvas = (points) => points.map(toCanvas);
  for (const { line, points, colour } of shown.ghosts) stroke(onCanvas(points), colour, line.joints ? 1.4 : 0.8);
  for (const body of shown.bodies) stroke(onCanvas(edgesAt(instant, body)), bodyColour(body.index), 0.8);
  for (const link of shown.traces) stroke(onCanvas(traceAt(instant, link)), colours.trace, 1.2);
  motion.links
    .map((link) => ({ link, points: onCanvas(lineAt(instant, link)) }))
    .sort((a, b) => nearness(a.points) - nearness(b.points))
    .forEach(({ link, points }) => drawLink(points, link));
  for (const { at, to, colour, heads } of shown.arrows) drawArrow(toCanvas(at), toCanvas(to), colour, heads);
  for (const point of shown.touching) dot(toCanvas(point), 5, colours.trace);
}

// Names of bodies or lines, beside their middles.
function drawNames(instant, { toCanvas }) {
  for (const link of motion.links) {
    if (!link.name) continue;
    const points = lineAt(instant, link).map(toCanvas);
    const middle = [0, 1].map((k) => points.reduce((sum, point) => sum + point[k], 0) / points.length);
    text(link.name, middle[0] + 7, middle[1] - 5, "left", colours.ink, 12);
  }
}

// The scale of the colours of the ghosts.
function drawScale() {
  const { low, high } = motion.ghosts;
  if (low === null) return;
  const [x, y, width] = [14, 16, 120];
  for (let k = 0; k < 40; k++) {
    stroke([[x + (width * k) / 40, y], [x + (width * (k + 1)) / 40, y]], scaleColour((k + 0.5) / 40), 8);
  }
  text(formatNumber(Number(low.toPrecision(3))), x, y + 18);
  text(formatNumber(Number(high.toPrecision(3))), x + width, y + 18, "right");
}
