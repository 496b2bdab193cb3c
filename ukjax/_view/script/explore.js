// The sliders of ukjax.explore: each change simulates again. One motion is asked for at a time, the newest.
const values = {};
let isAsking = false;
let isWaiting = false;

async function askForMotion() {
  if (isAsking) {
    isWaiting = true;
    return;
  }
  isAsking = true;
  do {
    isWaiting = false;
    try {
      const answer = await fetch(`motion?${new URLSearchParams(values)}`);
      if (answer.ok) {
        show(await answer.json(), false);
        draw();
      }
      element("problem").textContent = answer.ok ? "" : await answer.text();
    } catch {
      element("problem").textContent = "the program that simulates has ended";
    }
  } while (isWaiting);
  isAsking = false;
}

for (const { name, value, low, high } of JSON.parse(element("motion").textContent).sliders) {
  const shown = make("output", { textContent: formatNumber(Number(value.toPrecision(4))) });
  const slider = make("input", { id: `slider ${name}`, type: "range", min: low, max: high, step: "any", value });
  slider.addEventListener("input", () => {
    values[name] = slider.value;
    shown.textContent = formatNumber(Number(Number(slider.value).toPrecision(4)));
    askForMotion();
  });
  element("sliders").append(make("label", {}, `${name} = `, shown, slider));
}
element("panel").hidden = false;
draw();
