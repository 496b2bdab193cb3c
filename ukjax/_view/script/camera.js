// The camera: a parallel projection, turned by a drag, moved by a drag with shift or two fingers.
const camera = {};

function resetCamera() {
  Object.assign(camera, { azimuth: -1.01, elevation: 0.42, zoom: 1, right: 0, up: 0 });
}

// What the picture is framed around: the whole motion, the mechanism as it is now, or a body.
function frame(instant) {
  const follow = element("camera").value;
  const whole = Math.max(Math.hypot(...motion.half), 1e-9);
  if (follow === "now") {
    return { target: pointOf(motion.centres, motion.dimensions, 0, instant), radius: motion.radius };
  }
  const line = motion.links.findIndex((link) => `body ${link.name}` === follow);
  if (line >= 0) return { target: pointAt(instant, endOf(motion.links[line])), radius: motion.radius };
  return { target: [0, 0, 0], radius: whole };
}

// Pixels per metre, such that all that is framed fits on the canvas for every camera angle.
function scale(radius) {
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  const isWhole = radius === Math.max(Math.hypot(...motion.half), 1e-9);
  const room =
    isSpatial || !isWhole
      ? Math.min(width, height) / (2 * radius)
      : Math.min(width / Math.max(2 * motion.half[0], 0.2 * radius), height / Math.max(2 * motion.half[1], 0.2 * radius));
  return 0.86 * camera.zoom * room;
}

// The projection at an instant: the axes of the picture, and a function from points to pixels and nearness.
function projection(instant) {
  const { target, radius } = frame(instant);
  const s = scale(radius);
  const [x0, y0] = [canvas.clientWidth / 2 + camera.right, canvas.clientHeight / 2 + camera.up];
  const [sinA, cosA] = [Math.sin(camera.azimuth), Math.cos(camera.azimuth)];
  const [sinE, cosE] = [Math.sin(camera.elevation), Math.cos(camera.elevation)];
  const right = isSpatial ? [-sinA, cosA, 0] : [1, 0, 0];
  const up = isSpatial ? [-sinE * cosA, -sinE * sinA, cosE] : [0, 1, 0];
  const eye = isSpatial ? [cosE * cosA, cosE * sinA, sinE] : [0, 0, 1];
  const along = (axis, point) => axis[0] * (point[0] - target[0]) + axis[1] * (point[1] - target[1]) + axis[2] * (point[2] - target[2]);
  const toCanvas = (point) => [x0 + s * along(right, point), y0 - s * along(up, point), along(eye, point)];
  return { target, radius, s, x0, y0, right, up, eye, toCanvas };
}

// ---- fingers and mouse

const pointers = new Map();
let spread = 0;

function turnOrMove(dx, dy, moves) {
  if (isSpatial && !moves) {
    camera.azimuth -= dx * 0.008;
    camera.elevation = Math.min(1.57, Math.max(-1.57, camera.elevation + dy * 0.008));
  } else {
    camera.right += dx;
    camera.up += dy;
  }
}

function zoomBy(factor) {
  camera.zoom = Math.min(1000, Math.max(0.05, camera.zoom * factor));
}

function listenToCamera() {
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    spread = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const [dx, dy] = [(event.clientX - before[0]) / pointers.size, (event.clientY - before[1]) / pointers.size];
    pointers.set(event.pointerId, [event.clientX, event.clientY]);
    turnOrMove(dx, dy, event.shiftKey || pointers.size > 1);
    if (pointers.size === 2) {
      const [a, b] = [...pointers.values()];
      const apart = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (spread) zoomBy(apart / spread);
      spread = apart;
    }
    draw();
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      pointers.delete(event.pointerId);
      spread = 0;
    });
  }
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY * 0.0012));
      draw();
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", () => {
    resetCamera();
    draw();
  });
}
