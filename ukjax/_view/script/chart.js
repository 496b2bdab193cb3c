// The time history below the picture: its curves up to the end, and a mark at the time that is shown.
const chart = element("chart");

function shownHistory() {
  const choice = element("history").value;
  return choice === "" ? undefined : motion.histories[Number(choice)];
}

// The larger of the numbers that 1, 2 or 5 times a power of ten are, about `count` of them in a range.
function ticks(low, high, count) {
  const spacing = gridSpacing((8 * (high - low)) / count);
  const found = [];
  for (let i = Math.ceil(low / spacing - 1e-9); i * spacing <= high + 1e-9 * spacing; i++) found.push(i * spacing);
  return found;
}

const chartMargin = { left: 58, right: 24, top: 8, bottom: 20 };

function drawChart() {
  const history = shownHistory();
  chart.hidden = element("values").hidden = !history;
  if (!history) return;
  const [width, height, density] = [chart.clientWidth, chart.clientHeight, window.devicePixelRatio || 1];
  [chart.width, chart.height] = [Math.round(width * density), Math.round(height * density)];
  const ink = chart.getContext("2d");
  ink.setTransform(density, 0, 0, density, 0, 0);
  ink.clearRect(0, 0, width, height);
  const { t } = motion;
  const columns = history.names.length;
  let [low, high] = [history.low, history.high];
  if (!(high > low)) [low, high] = [low - 1, high + 1];
  const room = 0.06 * (high - low);
  [low, high] = [low - room, high + room];
  const { left, right, top, bottom } = chartMargin;
  const x = (time) => left + ((width - left - right) * (time - first)) / Math.max(last - first, 1e-12);
  const y = (value) => height - bottom - ((height - top - bottom) * (value - low)) / (high - low);
  const path = (points, colour, size) => {
    ink.strokeStyle = colour;
    ink.lineWidth = size;
    ink.beginPath();
    points.forEach(([px, py], k) => (k ? ink.lineTo(px, py) : ink.moveTo(px, py)));
    ink.stroke();
  };
  const word = (words, px, py, alignment) => {
    ink.fillStyle = colours.edge;
    ink.font = "11px system-ui, sans-serif";
    ink.textAlign = alignment;
    ink.fillText(words, px, py);
  };
  for (const value of ticks(low, high, Math.max(2, height / 35))) {
    path([[left, y(value)], [width - right, y(value)]], colours.grid, 1);
    word(formatNumber(value), left - 6, y(value) + 4, "right");
  }
  for (const time of ticks(first, last, Math.max(2, width / 90))) word(`${formatNumber(time)} s`, x(time), height - 5, "center");
  const step = Math.max(1, Math.floor(t.length / (2 * width)));
  for (let k = 0; k < columns; k++) {
    const points = [];
    for (let i = 0; i < t.length; i += step) {
      const value = history.values[i * columns + k];
      if (Number.isFinite(value)) points.push([x(t[i]), y(value)]);
    }
    path(points, bodyColour(k), 1.5);
  }
  path([[x(state.time), top], [x(state.time), height - bottom]], colours.trace, 1.5);
  const { low: before, high: after, part } = bracket(state.time);
  const rounding = 1e-9 * Math.max(Math.abs(low), Math.abs(high));
  const now = (k) => {
    const value = history.values[before * columns + k] * (1 - part) + history.values[after * columns + k] * part;
    return Math.abs(value) < rounding ? 0 : value;
  };
  element("values").replaceChildren(
    ...history.names.map((name, k) => {
      const entry = document.createElement("span");
      entry.textContent = `${name} ${formatNumber(Number(now(k).toPrecision(4)))}${history.unit ? ` ${history.unit}` : ""}`;
      entry.style.setProperty("--swatch", bodyColour(k));
      return entry;
    }),
  );
}

function listenToChart() {
  const seekAt = (event) => {
    if (!event.buttons) return;
    const { left, right } = chartMargin;
    const part = (event.clientX - chart.getBoundingClientRect().left - left) / (chart.clientWidth - left - right);
    seek(first + part * (last - first));
  };
  chart.addEventListener("pointerdown", (event) => {
    chart.setPointerCapture(event.pointerId);
    seekAt(event);
  });
  chart.addEventListener("pointermove", seekAt);
}
