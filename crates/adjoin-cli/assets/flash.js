"use strict";
// Runs of the model of a device: one, or several with other values of something.
(() => {
  const { data, byId, element, count, panel, track, chart } = page;
  const { over, values, figures } = data;
  const first = figures[0];
  const COLORS = ["#2f6fde", "#d9822b", "#12a594", "#7a5af8", "#c62a2f", "#98a2b3", "#1c2430"];
  const rate = "queries_per_second" in first ? "queries_per_second" : "reads_per_second";
  const words = (name) => name.replaceAll("_", " ");
  const short = (value) => (Number.isInteger(value) ? count(value) : typeof value === "number" ? Number(value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 20 }) : String(value));
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  // What queries or reads cost each, so that runs of other lengths can be compared.
  const of = (one) => one.queries || one.reads || 1;

  function describe() {
    const swept = over === null ? "" : `, over ${over}`;
    byId("title").textContent = (over === "platform" ? "platforms" : first.platform) + ` on ${first.model}${swept}`;
    const work = first.queries ? `${count(first.queries)} queries` : `${count(first.reads)} reads`;
    byId("subtitle").textContent = `${work}; all times are computed by a model`;
    document.title = byId("title").textContent;
  }

  // One run ---------------------------------------------------------------------------------------------------------

  function rateCard() {
    const card = panel("cards", words(rate));
    card.append(element("div", "big", short(first[rate])), element("div", "note", `${short(first.seconds)} s in all`));
    if (first.latency_us) {
      card.append(element("div", "note", `a read takes ${short(first.latency_us.mean)} us, at most ${short(first.latency_us.max)}`));
    }
  }

  function busyCard() {
    const card = panel("cards", "Busy");
    for (const [name, share] of Object.entries(first.busy)) {
      card.append(element("div", "note", `${name}: ${percent(share)}`), track([{ kind: "range", from: 0, to: Math.min(1, share) }]));
    }
  }

  // The parts of a whole, one beside the other.
  function partsCard(title, parts, unit) {
    const named = Object.entries(parts).filter(([name, value]) => name !== "total" && value > 0);
    const whole = named.reduce((sum, [, value]) => sum + value, 0);
    if (!whole) return;
    const card = panel("cards", title);
    card.append(element("div", "big", `${short(whole)} ${unit}`));
    let from = 0;
    card.append(track(named.map(([, value], k) => {
      const part = { kind: "part", from, to: from + value / whole, color: COLORS[k % COLORS.length] };
      from = part.to;
      return part;
    })));
    named.forEach(([name, value], k) => {
      const line = element("div", "note", `■ ${name}: ${percent(value / whole)}`);
      line.style.color = COLORS[k % COLORS.length];
      card.append(line);
    });
  }

  // Several ---------------------------------------------------------------------------------------------------------

  const numbers = values.map(Number);
  const areNumbers = numbers.every(Number.isFinite);
  // uPlot wants ascending places.
  const order = values.map((_, k) => k);
  if (areNumbers) order.sort((a, b) => numbers[a] - numbers[b]);
  const places = order.map((k, at) => (areNumbers ? numbers[k] : at));
  const isWide = areNumbers && places[0] > 0 && places[places.length - 1] / places[0] > 20;

  function lines(title, note, named, shown) {
    const drawn = Object.entries(named).filter(([, all]) => all.some((value) => value));
    if (!drawn.length) return;
    const label = (place) => (areNumbers ? short(place) : values[order[place]] ?? "");
    chart(title, note, {
      scales: { x: { time: false, distr: isWide ? 3 : 1, range: areNumbers ? [places[0], places[places.length - 1]] : [-0.5, places.length - 0.5] }, y: { range: (_, low, high) => [Math.min(0, low), high * 1.05 || 1] } },
      axes: [
        { label: over, values: (_, all) => all.map((place) => (place === null ? "" : label(place))), splits: areNumbers ? undefined : () => places },
        { size: 80, values: (_, all) => all.map(shown) },
      ],
      series: [
        { label: over, value: (_, place) => (place === null ? "" : label(place)) },
        ...drawn.map(([name], k) => ({ label: words(name), stroke: COLORS[k % COLORS.length], width: 2, paths: areNumbers ? undefined : () => null, points: { show: true, size: areNumbers ? 6 : 10 }, value: (_, value) => (value === null ? "" : shown(value)) })),
      ],
    }, [places, ...drawn.map(([, all]) => order.map((k) => all[k]))]);
  }

  // Of each part of a figure its values in all runs, each made by `value`.
  function parts(name, value = (part) => part) {
    const named = {};
    for (const part of Object.keys(first[name] || {})) named[part] = figures.map((one) => value(one[name][part], one));
    return named;
  }

  function sweepCharts() {
    lines(words(rate), "how much is done in a second", { [rate]: figures.map((one) => one[rate]) }, short);
    if (first.latency_us) lines("latency, us", "how long a read takes", parts("latency_us"), short);
    lines("Busy", "how much of the time each resource works", parts("busy"), percent);
    lines("Stages", "where the time goes", parts("stage_seconds", (value, one) => value / one.seconds), percent);
    lines("Energy", "joules for each query or read", parts("joules", (value, one) => value / of(one)), short);
  }

  // All figures -----------------------------------------------------------------------------------------------------

  function flattened(name, value, into) {
    if (value !== null && typeof value === "object") {
      for (const [part, inner] of Object.entries(value)) flattened(name ? `${name}.${part}` : part, inner, into);
    } else {
      into[name] = value;
    }
    return into;
  }

  function table() {
    const all = figures.map((one) => flattened("", one, {}));
    const made = element("table");
    const row = (tag, cells) => {
      const line = element("tr");
      cells.forEach((cell) => line.append(element(tag, "", cell)));
      made.append(line);
    };
    if (over !== null) row("th", [over, ...values]);
    for (const name of Object.keys(all[0])) row("td", [name, ...all.map((one) => short(one[name]))]);
    const card = panel("all", "All figures");
    card.append(made);
  }

  describe();
  if (over === null) {
    rateCard();
    busyCard();
    partsCard("Stages", first.stage_seconds || {}, "s");
    partsCard("Energy", first.joules || {}, "J");
  } else {
    sweepCharts();
  }
  table();
})();
