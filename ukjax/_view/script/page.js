// The page: what is shown, the time that runs, the switches, and what is saved.

// ---- drawing

const state = { time: 0, isPlaying: false, previousNow: null };
let renderer = null;

// What the switches choose of the motion at an instant.
function chosen(instant) {
  const isOn = (id) => element(id).checked;
  const size = (0.55 * motion.radius * 2 ** Number(element("length").value));
  const solids = isOn("solids") && renderer ? motion.bodies.filter((body) => body.shape.faces.length) : [];
  const isSolid = new Set(solids.map((body) => body.name));
  return {
    solids,
    bodies: motion.bodies.filter((body) => !isSolid.has(body.name)),
    links: motion.links.filter((link) => !isSolid.has(link.name)),
    traces: isOn("traces") ? motion.links.filter((_, k) => element(`trace ${k}`).checked) : [],
    touching: isOn("touching") ? touchingAt(instant) : [],
    arrows: motion.arrows.flatMap((arrow, index) =>
      isOn(`arrow ${index}`)
        ? arrowsAt(instant, arrow).map(([at, vector]) => ({
            at,
            to: at.map((x, k) => x + (vector[k] * size) / arrow.largest),
            colour: arrowColour(index),
            heads: arrow.unit === "N m" ? 2 : 1,
          }))
        : [],
    ),
    ghosts:
      motion.ghosts && isOn("ghosts")
        ? Array.from({ length: motion.ghosts.members }, (_, member) =>
            motion.links.map((line) => ({
              line,
              points: ghostAt(instant, member, line),
              colour: motion.ghosts.low === null ? colours.edge : scaleColour(motion.ghosts.colour[member]),
            })),
          ).flat()
        : [],
  };
}

function draw() {
  const density = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.max(1, Math.round(size * density)));
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  pen.lineJoin = pen.lineCap = "round";
  colours = pageColours();
  pen.fillStyle = colours.paper;
  pen.fillRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  const instant = bracket(state.time);
  const view = projection(instant);
  if (renderer?.isLost()) renderer = null;
  const shown = chosen(instant);
  if (!isSpatial) {
    drawPlaneGrid(view);
    drawFlat(instant, view, shown);
  } else {
    const floor = floorLines(view);
    if (renderer) {
      renderer.begin(width, height, density, view);
      drawSolids(renderer, instant, view, shown, floor);
      pen.drawImage(renderer.surface, 0, 0, canvas.clientWidth, canvas.clientHeight);
    } else {
      for (const [from, to, isAxis] of floor.lines) stroke([view.toCanvas(from), view.toCanvas(to)], colours.grid, isAxis ? 2 : 1);
      drawFlat(instant, view, shown);
    }
    drawAxes(view, floor);
  }
  if (element("names").checked) drawNames(instant, view);
  if (shown.ghosts.length) drawScale();
  drawChart();
  const digits = Math.min(9, Math.max(2, 2 - Math.floor(Math.log10(Math.max(last - first, 1e-9)))));
  element("clock").textContent = `t = ${state.time.toFixed(digits)} s`;
  element("when").value = last > first ? (state.time - first) / (last - first) : 0;
  element("play").textContent = state.isPlaying ? "❚❚" : "▸";
}

// ---- playing

const roundUp = (factor) => {
  const power = 10 ** Math.floor(Math.log10(factor));
  return power * [1, 2, 5, 10].find((x) => x * power >= factor * 0.999);
};

function offerSpeeds() {
  const duration = last - first;
  const usual = duration >= 2 && duration <= 30 ? 1 : roundUp(Math.max(duration, 1e-9) / 10);
  const speeds = [0.1, 0.25, 0.5, 1, 2, 4].map((multiple) => [multiple * usual, `${formatNumber(multiple * usual)} ×`]);
  offer("speed", speeds, usual);
}

function nextFrame(now) {
  if (!state.isPlaying) return;
  if (state.previousNow !== null) {
    state.time += ((now - state.previousNow) / 1000) * Number(element("speed").value);
    if (state.time > last) {
      state.time = first;
      state.atEnd?.();
    }
  }
  state.previousNow = now;
  draw();
  requestAnimationFrame(nextFrame);
}

function play(isPlaying) {
  const wasPlaying = state.isPlaying;
  Object.assign(state, { isPlaying, previousNow: null });
  draw();
  if (isPlaying && !wasPlaying) requestAnimationFrame(nextFrame);
}

function seek(time) {
  state.time = Math.min(last, Math.max(first, time));
  play(false);
}

// ---- switches

function make(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Fill a list of choices with pairs of value and words.
function offer(id, choices, value) {
  element(id).replaceChildren(...choices.map(([each, words]) => make("option", { value: each, textContent: words })));
  element(id).value = value;
}

function checkbox(id, words, checked, colour) {
  const box = make("input", { id, type: "checkbox", checked });
  box.addEventListener("change", draw);
  const label = make("label", {}, box, ` ${words}`);
  if (colour) label.style.setProperty("--swatch", colour);
  return label;
}

function offerSwitches() {
  const has = { solids: motion.bodies.some((body) => body.shape.faces.length) && renderer, touching: motion.touching.length, ghosts: motion.ghosts };
  for (const [id, isThere] of Object.entries(has)) element(id).parentElement.hidden = !isThere;
  const moves = Math.hypot(...motion.half) > 3 * motion.radius;
  const names = motion.links.map((link) => link.name).filter(Boolean);
  const bodies = names.map((name) => [`body ${name}`, `follow ${name}`]);
  offer("camera", [["whole", "the whole motion"], ["now", "the mechanism now"], ...bodies], moves ? "now" : "whole");
  const many = motion.links.length > 6;
  element("bodies").replaceChildren(
    ...motion.links.map((link, k) =>
      checkbox(`trace ${k}`, link.name || `line ${k + 1}`, link.traced ?? !many, linkColour(link)),
    ),
  );
  element("arrows").replaceChildren(
    ...motion.arrows.map((arrow, k) =>
      checkbox(`arrow ${k}`, `${arrow.name} (largest ${formatNumber(Number(arrow.largest.toPrecision(3)))} ${arrow.unit})`, k === 0, arrowColour(k)),
    ),
  );
  element("forces").hidden = !motion.arrows.length;
  const histories = motion.histories.map((history, k) => [String(k), history.title]);
  offer("history", [["", "none"], ...histories], histories.length && window.innerHeight >= 640 ? "0" : "");
}

// ---- what is saved

function saveAs(blob, ending) {
  const link = make("a", { href: URL.createObjectURL(blob), download: `${motion.title.replace(/[^\w-]+/g, "_") || "motion"}.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Play the motion once and save what the canvas shows.
function film() {
  const kind = ["video/mp4", "video/webm"].find((each) => MediaRecorder.isTypeSupported(each));
  const recorder = new MediaRecorder(canvas.captureStream(30), { mimeType: kind, videoBitsPerSecond: 8_000_000 });
  const parts = [];
  recorder.ondataavailable = (event) => parts.push(event.data);
  recorder.onstop = () => {
    saveAs(new Blob(parts, { type: kind }), kind.slice(6));
    element("film").disabled = false;
    element("film").textContent = "film";
  };
  element("film").disabled = true;
  element("film").textContent = "recording …";
  seek(first);
  recorder.start();
  state.atEnd = () => {
    state.atEnd = null;
    play(false);
    recorder.stop();
  };
  play(true);
}

// ---- start

// Show a motion. Another motion of the same mechanism keeps the camera, the switches and the time.
function show(written, isNew) {
  load(written);
  colours = pageColours();
  if (isNew) {
    renderer?.forget();
    renderer = isSpatial ? solidRenderer() : null;
    state.time = first;
    resetCamera();
    offerSpeeds();
    offerSwitches();
  }
  state.time = Math.min(last, Math.max(first, state.time));
  element("ended").textContent = motion.ended;
}

function listen() {
  element("play").addEventListener("click", () => play(!state.isPlaying));
  element("when").addEventListener("input", (event) => seek(first + Number(event.target.value) * (last - first)));
  for (const id of ["traces", "solids", "touching", "names", "ghosts", "camera", "history"]) element(id).addEventListener("change", draw);
  element("length").addEventListener("input", draw);
  element("more").addEventListener("click", () => {
    element("panel").hidden = !element("panel").hidden;
    draw();
  });
  element("picture").addEventListener("click", () => canvas.toBlob((blob) => saveAs(blob, "png")));
  element("film").addEventListener("click", film);
  element("film").hidden = !window.MediaRecorder || !canvas.captureStream;
  document.addEventListener("keydown", (event) => {
    if (["SELECT", "INPUT", "BUTTON"].includes(event.target.tagName)) return;
    const { low, high, part } = bracket(state.time);
    const { t } = motion;
    if (event.key === " ") play(!state.isPlaying);
    else if (event.key === "ArrowRight") seek(t[part < 1 ? high : Math.min(high + 1, t.length - 1)]);
    else if (event.key === "ArrowLeft") seek(t[part > 0 ? low : Math.max(low - 1, 0)]);
    else return;
    event.preventDefault();
  });
  listenToCamera();
  listenToChart();
  new ResizeObserver(draw).observe(canvas);
}

element("panel").hidden = window.innerWidth < 760;
show(JSON.parse(element("motion").textContent), true);
element("hint").textContent = isSpatial ? "drag to turn, with shift to move, wheel to zoom" : "drag to move, wheel to zoom";
listen();
play(last > first && !matchMedia("(prefers-reduced-motion: reduce)").matches);
