// Shaded solids by WebGL: triangles lit from the eye, lines of a width in pixels, and the shadow on the floor.
const SOLID_VERTEX = `#version 300 es
in vec3 position, normal;
uniform mat4 model;
uniform mat3 turn;
uniform vec3 target, right, up, eye, perPixel;
uniform vec2 offset;
uniform float floorHeight;
uniform bool isShadow;
out vec3 facing;
void main() {
  vec3 p = (model * vec4(position, 1.0)).xyz;
  if (isShadow) p.z = floorHeight;
  p -= target;
  facing = turn * normal;
  gl_Position = vec4(dot(right, p) * perPixel.x + offset.x, dot(up, p) * perPixel.y + offset.y, -dot(eye, p) * perPixel.z, 1.0);
}`;

const SOLID_FRAGMENT = `#version 300 es
precision highp float;
in vec3 facing;
uniform vec3 colour, right, up, eye;
uniform bool isShadow;
out vec4 shade;
void main() {
  if (isShadow) { shade = vec4(colour, 1.0); return; }
  vec3 n = normalize(facing);
  if (dot(n, eye) < 0.0) n = -n;
  vec3 light = normalize(0.8 * eye + 0.75 * up - 0.45 * right);
  float diffuse = max(dot(n, light), 0.0);
  float gloss = pow(max(dot(n, normalize(light + eye)), 0.0), 40.0);
  shade = vec4(colour * (0.42 + 0.62 * diffuse) + 0.12 * gloss, 1.0);
}`;

const LINE_VERTEX = `#version 300 es
in vec3 from, to;
in vec2 corner;
uniform vec3 target, right, up, eye, perPixel;
uniform vec2 offset, pixel;
uniform float width, nearer;
vec3 project(vec3 p) {
  p -= target;
  return vec3(dot(right, p) * perPixel.x + offset.x, dot(up, p) * perPixel.y + offset.y, -dot(eye, p) * perPixel.z);
}
void main() {
  vec3 a = project(from), b = project(to);
  vec2 along = (b.xy - a.xy) / pixel;
  float size = length(along);
  vec2 unit = size > 1e-6 ? along / size : vec2(1.0, 0.0);
  vec3 at = mix(a, b, corner.x);
  vec2 shift = 0.5 * width * (corner.y * vec2(-unit.y, unit.x) + (2.0 * corner.x - 1.0) * 0.5 * unit);
  gl_Position = vec4(at.xy + shift * pixel, at.z - nearer, 1.0);
}`;

const LINE_FRAGMENT = `#version 300 es
precision highp float;
uniform vec3 colour;
out vec4 shade;
void main() { shade = vec4(colour, 1.0); }`;

const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16) / 255);

const mixed = (a, b, part) => a.map((x, k) => x + (b[k] - x) * part);

const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

// Corners of triangles, with normals: the mean of the neighbouring triangles', unless an edge is sharper than 40°.
function withNormals(vertices, faces) {
  const count = faces.length / 3;
  const corner = (index) => vertices.subarray(3 * index, 3 * index + 3);
  const keys = new Map(); // vertices at the same place are one
  const place = Array.from({ length: vertices.length / 3 }, (_, k) => {
    const key = [...corner(k)].map((x) => x.toPrecision(5)).join();
    if (!keys.has(key)) keys.set(key, keys.size);
    return keys.get(key);
  });
  const facing = [];
  const around = Array.from({ length: keys.size }, () => []);
  for (let f = 0; f < count; f++) {
    const [a, b, c] = [0, 1, 2].map((k) => corner(faces[3 * f + k]));
    const normal = cross([b[0] - a[0], b[1] - a[1], b[2] - a[2]], [c[0] - a[0], c[1] - a[1], c[2] - a[2]]);
    facing.push(normal); // as long as twice the area
    for (let k = 0; k < 3; k++) around[place[faces[3 * f + k]]].push(f);
  }
  const points = new Float32Array(9 * count);
  const normals = new Float32Array(9 * count);
  const sharp = Math.cos((40 * Math.PI) / 180);
  for (let f = 0; f < count; f++) {
    const own = facing[f];
    const size = Math.hypot(...own) || 1;
    for (let k = 0; k < 3; k++) {
      const index = faces[3 * f + k];
      const sum = [0, 0, 0];
      for (const other of around[place[index]]) {
        const normal = facing[other];
        const cosine = (normal[0] * own[0] + normal[1] * own[1] + normal[2] * own[2]) / (size * (Math.hypot(...normal) || 1));
        if (cosine >= sharp || other === f) for (let i = 0; i < 3; i++) sum[i] += normal[i];
      }
      const length = Math.hypot(...sum) || 1;
      points.set(corner(index), 9 * f + 3 * k);
      normals.set(sum.map((x) => x / length), 9 * f + 3 * k);
    }
  }
  return { points, normals };
}

// A surface of revolution about z: rings of (radius, height).
function revolved(rings, around = 20) {
  const vertices = [];
  const faces = [];
  rings.forEach(([radius, height], ring) => {
    for (let k = 0; k < around; k++) {
      const angle = (2 * Math.PI * k) / around;
      vertices.push(radius * Math.cos(angle), radius * Math.sin(angle), height);
      const [a, b] = [ring * around + k, ring * around + ((k + 1) % around)];
      if (ring + 1 < rings.length) faces.push(a, b, a + around, b, b + around, a + around);
    }
  });
  return { vertices: new Float32Array(vertices), faces: new Uint32Array(faces) };
}

const UNIT_BALL = revolved(Array.from({ length: 13 }, (_, k) => [Math.cos((k / 12 - 0.5) * Math.PI), Math.sin((k / 12 - 0.5) * Math.PI)]));
const UNIT_ROD = revolved([[0, 0], [1, 0], [1, 1], [0, 1]]);
const UNIT_CONE = revolved([[0, 0], [1, 0], [0, 1]]);

// A renderer, or null where there is no WebGL.
function solidRenderer() {
  const surface = document.createElement("canvas");
  const gl = surface.getContext?.("webgl2", { antialias: true, alpha: true, preserveDrawingBuffer: true });
  if (!gl) return null;
  const program = (vertex, fragment) => {
    const made = gl.createProgram();
    for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      gl.attachShader(made, shader);
    }
    gl.linkProgram(made);
    return { made, at: (name) => gl.getUniformLocation(made, name), into: (name) => gl.getAttribLocation(made, name) };
  };
  const bufferOf = (values) => {
    const buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    return buffer;
  };
  const solids = program(SOLID_VERTEX, SOLID_FRAGMENT);
  const lines = program(LINE_VERTEX, LINE_FRAGMENT);
  const corners = bufferOf(new Float32Array([0, -1, 1, -1, 0, 1, 1, 1]));
  const moving = gl.createBuffer(); // the points of one line at a time
  const attribute = (program, name, buffer, size, stride, offset, divisor) => {
    const index = program.into(name);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
    gl.enableVertexAttribArray(index);
    gl.vertexAttribPointer(index, size, gl.FLOAT, false, stride, offset);
    gl.vertexAttribDivisor(index, divisor);
  };
  let density;
  let view;

  // Meshes stay on the graphics card until `forget`.
  let meshes = new Map();
  function meshOf(solid) {
    if (!meshes.has(solid)) {
      const { points, normals } = withNormals(solid.vertices, solid.faces);
      meshes.set(solid, { points: bufferOf(points), normals: bufferOf(normals), count: points.length / 3 });
    }
    return meshes.get(solid);
  }

  function use(program) {
    gl.useProgram(program.made);
    for (const name of ["target", "right", "up", "eye"]) gl.uniform3fv(program.at(name), view[name]);
    const [width, height] = [surface.width / density, surface.height / density];
    gl.uniform3f(program.at("perPixel"), (2 * view.s) / width, (2 * view.s) / height, 1 / view.depth);
    gl.uniform2f(program.at("offset"), (2 * view.x0) / width - 1, 1 - (2 * view.y0) / height);
    return [width, height];
  }

  return {
    surface,
    forget() {
      for (const { points, normals } of meshes.values()) [points, normals].forEach((buffer) => gl.deleteBuffer(buffer));
      meshes = new Map();
    },
    isLost: () => gl.isContextLost(),
    begin(width, height, ratio, seen) {
      density = ratio;
      [surface.width, surface.height] = [width, height];
      const sizes = motion.half.map((half) => 2 * half);
      view = { ...seen, depth: 4 * (Math.hypot(...sizes) + seen.radius) };
      gl.viewport(0, 0, width, height);
      gl.clearColor(0, 0, 0, 0);
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      gl.enable(gl.DEPTH_TEST);
    },
    // What is drawn from here on covers what has been drawn.
    onTop: () => gl.clear(gl.DEPTH_BUFFER_BIT),
    // `pose` has the rows of (R | p); `sizes` scales the solid along its axes. A shadow is flat, at `floorHeight`.
    solid(solid, pose, sizes, colour, floorHeight = null) {
      const mesh = meshOf(solid);
      use(solids);
      attribute(solids, "position", mesh.points, 3, 0, 0, 0);
      attribute(solids, "normal", mesh.normals, 3, 0, 0, 0);
      const columns = [0, 1, 2].map((k) => pose.map((row) => row[k]));
      const scaled = columns.flatMap((column, k) => [...column.map((x) => x * sizes[k]), 0]);
      gl.uniformMatrix4fv(solids.at("model"), false, [...scaled, ...pose.map((row) => row[3]), 1]);
      gl.uniformMatrix3fv(solids.at("turn"), false, columns.flatMap((column, k) => column.map((x) => x / sizes[k])));
      gl.uniform3fv(solids.at("colour"), colour);
      gl.uniform1i(solids.at("isShadow"), floorHeight === null ? 0 : 1);
      gl.uniform1f(solids.at("floorHeight"), floorHeight ?? 0);
      gl.drawArrays(gl.TRIANGLES, 0, mesh.count);
    },
    // A line through points, `width` pixels wide; NaN interrupts it.
    line(points, colour, width, nearer = 0) {
      let runs = [[]];
      for (const point of points) {
        if (point.every(Number.isFinite)) runs[runs.length - 1].push(...point);
        else runs.push([]);
      }
      const [w, h] = use(lines);
      gl.uniform2f(lines.at("pixel"), 2 / w, 2 / h);
      gl.uniform1f(lines.at("width"), width);
      gl.uniform1f(lines.at("nearer"), nearer);
      gl.uniform3fv(lines.at("colour"), colour);
      for (const run of runs.filter((each) => each.length >= 6)) {
        gl.bindBuffer(gl.ARRAY_BUFFER, moving);
        gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(run), gl.STREAM_DRAW);
        attribute(lines, "from", moving, 3, 12, 0, 1);
        attribute(lines, "to", moving, 3, 12, 12, 1);
        attribute(lines, "corner", corners, 2, 0, 0, 0);
        gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, run.length / 3 - 1);
      }
      for (const name of ["from", "to"]) gl.vertexAttribDivisor(lines.into(name), 0);
    },
  };
}

// A pose whose z axis leads from one point to another, and the distance.
function poseAlong(from, to) {
  const along = to.map((x, k) => x - from[k]);
  const length = Math.hypot(...along);
  const z = length > 0 ? along.map((x) => x / length) : [0, 0, 1];
  const helper = Math.abs(z[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0];
  let x = cross(helper, z);
  const size = Math.hypot(...x);
  x = x.map((value) => value / size);
  const y = cross(z, x);
  return { length, pose: [0, 1, 2].map((k) => [x[k], y[k], z[k], from[k]]) };
}

// A motion in space: floor, shadow, solids, rods between joints, traces, arrows.
function drawSolids(renderer, instant, view, shown, floor) {
  const { radius } = view;
  const thick = 0.011 * radius;
  const grid = rgb(colours.grid);
  const ball = (point, size, colour) =>
    renderer.solid(UNIT_BALL, [0, 1, 2].map((k) => [k === 0, k === 1, k === 2].map(Number).concat(point[k])), [size, size, size], colour);
  const rod = (from, to, size, colour) => {
    const { length, pose } = poseAlong(from, to);
    if (length > 0) renderer.solid(UNIT_ROD, pose, [size, size, length], colour);
  };
  const isFloorSeen = camera.elevation > 0;
  for (const [from, to, isAxis] of floor.lines) renderer.line([from, to], grid, isAxis ? 2.4 : 1.2, isFloorSeen ? -1e-5 : 0);
  const solid = shown.solids.map((body) => [body, poseAt(instant, body)]);
  if (isFloorSeen) {
    const shadow = mixed(rgb(colours.paper), grid, 0.75);
    for (const [body, pose] of solid) renderer.solid(body.shape, pose, [1, 1, 1], shadow, floor.corner[2]);
  }
  for (const [body, pose] of solid) renderer.solid(body.shape, pose, [1, 1, 1], rgb(bodyColour(body.index)));
  for (const body of shown.bodies) renderer.line(edgesAt(instant, body), mixed(rgb(bodyColour(body.index)), rgb(colours.paper), 0.3), 1.2);
  for (const link of shown.links) {
    const points = lineAt(instant, link);
    const colour = rgb(linkColour(link));
    if (!link.joints) renderer.line(points, colour, 2.5);
    else for (let k = 1; k < points.length; k++) rod(points[k - 1], points[k], thick, colour);
    if (link.joints || link.points === 1) points.forEach((point) => ball(point, 1.7 * thick, mixed(colour, [0, 0, 0], 0.15)));
  }
  for (const { points, colour } of shown.ghosts) renderer.line(points, rgb(colour), 1.6);
  for (const link of shown.traces) renderer.line(traceAt(instant, link), rgb(colours.trace), 1.6);
  renderer.onTop(); // arrows begin inside the bodies
  for (const { at, to, colour, heads } of shown.arrows) {
    const { length, pose } = poseAlong(at, to);
    const head = Math.min(6 * thick, 0.6 * length);
    rod(at, to.map((x, k) => x - ((x - at[k]) * head) / length), 0.6 * thick, rgb(colour));
    for (let k = 0; k < heads; k++) {
      const from = [0, 1, 2].map((i) => at[i] + pose[i][2] * (length - head * (1 + 0.8 * k)));
      renderer.solid(UNIT_CONE, pose.map((row, i) => [row[0], row[1], row[2], from[i]]), [head / 3, head / 3, head], rgb(colour));
    }
  }
  for (const point of shown.touching) ball(point, 2.2 * thick, rgb(colours.trace));
}
