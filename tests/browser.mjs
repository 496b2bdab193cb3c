// As much of a browser, without WebGL, as a page of ukjax.view needs: draws nothing, and tells what would have been drawn.
//
// node browser.mjs PAGE < events: a JSON list of {"id", "type", ...} given to what the page listens to, one after the
// other; null lets a frame pass. Prints, as JSON, what the picture consists of at the start and after each of them.
import { readFileSync } from "node:fs";

const page = readFileSync(process.argv[2], "utf-8");
const events = JSON.parse(readFileSync(0, "utf-8"));
const [width, height] = [800, 600];

let picture = { strokes: [], texts: [], dots: 0 };
let path = [];
const pen = new Proxy(
  {
    clearRect: () => (picture = { strokes: [], texts: [], dots: 0 }),
    beginPath: () => (path = []),
    moveTo: (x, y) => path.push(["move", x, y]),
    lineTo: (x, y) => path.push(["line", x, y]),
    arc: () => (picture.dots += 1),
    stroke: () => path.length && picture.strokes.push({ style: pen.strokeStyle, path }),
    fillText: (words) => picture.texts.push(words),
    fill: () => {},
    fillRect: () => {},
    setTransform: () => {},
  },
  { set: (target, name, value) => ((target[name] = value), true) },
);

const chart = new Proxy({}, { get: () => () => {}, set: () => true }); // takes all, and draws nothing

const listeners = {};
let frames = [];
let now = 0;

function elementOf(id) {
  const listen = (type, call) => (listeners[`${id}.${type}`] = call);
  const element = { id, value: "1", checked: true, textContent: "", tagName: "DIV", hidden: false, disabled: false };
  Object.assign(element, { append: () => {}, replaceChildren: () => {}, style: { setProperty: () => {} }, parentElement: {} });
  return Object.assign(element, { addEventListener: listen, setPointerCapture: () => {} });
}

const found = {};
const element = (id) => (found[id] ??= elementOf(id));
Object.assign(element("chart"), { clientWidth: width, clientHeight: 130, getContext: () => chart });
Object.assign(element("canvas"), { clientWidth: width, clientHeight: height, getContext: () => pen });
element("motion").textContent = page.match(/<script id="motion" type="application\/json">(.*?)<\/script>/s)[1];

globalThis.document = {
  getElementById: element,
  documentElement: {},
  createElement: () => elementOf("option"),
  addEventListener: (type, call) => (listeners[`document.${type}`] = call),
};
globalThis.window = { devicePixelRatio: 2, innerWidth: width, innerHeight: height };
globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => name.slice(2) });
globalThis.ResizeObserver = class {
  observe() {}
};
globalThis.matchMedia = () => ({ matches: !events.includes(null) }); // plays only where a frame is to pass
globalThis.requestAnimationFrame = (call) => frames.push(call);

const script = page.match(/<script type="module">(.*?)<\/script>/s)[1];
await import(`data:text/javascript,${encodeURIComponent(script)}`);

const shown = () => ({
  ...picture,
  clock: element("clock").textContent,
  ended: element("ended").textContent,
  hint: element("hint").textContent,
});
const told = [shown()];
for (const event of events) {
  if (event === null) {
    now += 100;
    const due = frames;
    frames = [];
    for (const call of due) call(now);
  } else {
    const { id, type, ...rest } = event;
    const target = id === "document" ? { tagName: "BODY" } : Object.assign(element(id), rest.target ?? {});
    listeners[`${id}.${type}`]({ preventDefault: () => {}, ...rest, target });
  }
  told.push(shown());
}
console.log(JSON.stringify(told));
