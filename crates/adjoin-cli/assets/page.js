"use strict";
// One page, no network: draws what lies in the element `data`. This is what all pages draw with.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  function element(tag, classes, text) {
    const made = document.createElement(tag);
    if (classes) made.className = classes;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  const count = (number) => number.toLocaleString("en");
  const bytes = (number) => {
    const units = ["bytes", "kB", "MB", "GB", "TB"];
    let unit = 0;
    while (number >= 1000 && unit < 4) { number /= 1000; unit += 1; }
    return `${number.toFixed(unit ? 1 : 0)} ${units[unit]}`;
  };

  function panel(parent, title) {
    const made = element("div", "panel");
    made.append(element("h2", "", title));
    byId(parent).append(made);
    return made;
  }

  function track(parts) {
    const made = element("div", "track");
    for (const { kind, from, to, color, title } of parts) {
      const part = element("div", kind);
      part.style.left = `${100 * from}%`;
      if (to !== undefined) part.style.width = `${100 * (to - from)}%`;
      if (color) part.style.background = color;
      if (title) part.title = title;
      made.append(part);
    }
    return made;
  }

  function chart(title, note, options, values) {
    const card = panel("charts", title);
    const place = element("div", "chart");
    card.append(place, element("div", "note", note));
    const size = () => ({ width: Math.max(200, place.clientWidth), height: 240 });
    const drawn = new uPlot({ ...size(), ...options }, values, place);
    // A card becomes narrower when the next one is added to its row, and with the window.
    new ResizeObserver(() => drawn.setSize(size())).observe(place);
  }

  const line = (label, extra) => ({ label, stroke: "#2f6fde", width: 2, fill: "rgba(47,111,222,.12)", ...extra });

  return { data, byId, element, count, bytes, panel, track, chart, line };
})();
