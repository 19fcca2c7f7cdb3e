"use strict";
// The pairs of a join.
(() => {
  const { data, byId, element, count, bytes, panel, track, chart, line } = page;
  const stats = data.stats;
  const isSimilarity = data.value === "similarity";

  // Summary -------------------------------------------------------------------------------------------------------

  function describe() {
    byId("title").textContent = `${count(data.total)} pairs`;
    const parts = [data.source];
    if (stats) {
      const { eps, min_similarity: similarity } = stats.join;
      const threshold = eps !== null ? `at most ${eps} apart` : `at least ${similarity} alike`;
      const others = stats.join.with_rows;
      const rows = others === null ? count(stats.rows) : `${count(stats.rows)} with ${count(others)}`;
      parts.push(`${rows} vectors of ${stats.dimensions} ${stats.element}`, threshold);
    }
    byId("subtitle").textContent = parts.join(" · ");
  }

  function recallCard() {
    const recall = stats.recall;
    const card = panel("cards", "Recall");
    const verdict = recall.kept ? "promise kept" : "promise not kept";
    card.append(element("div", "big", recall.pair.estimate.toFixed(4)));
    card.append(element("div", recall.kept ? "good" : "bad", `${recall.target} was asked: ${verdict}`));
    // A scale from a little below what is of interest.
    const least = Math.max(0, Math.min(recall.target, recall.pair.low, recall.per_vector.low) - 0.02);
    const at = (value) => (value - least) / (1 - least || 1);
    for (const [name, told] of [["of all pairs", recall.pair], ["of the average vector's", recall.per_vector]]) {
      card.append(element("div", "note", `${name}: ${told.low.toFixed(4)} to ${told.high.toFixed(4)}`));
      card.append(track([
        { kind: "range", from: at(told.low), to: at(told.high) },
        { kind: "point", from: at(told.estimate) },
        { kind: "target", from: at(recall.target), title: `asked: ${recall.target}` },
      ]));
    }
    const vectors = recall.sample_vectors_with_neighbors;
    card.append(element("div", "note", vectors === null ? "by proof" : `from ${count(vectors)} sampled vectors`));
  }

  function memoryCard() {
    const memory = stats.memory;
    const card = panel("cards", "Memory");
    if (memory.peak_bytes === null) {
      card.append(element("div", "note", `this system does not report the peak; the budget is ${bytes(memory.budget_bytes)}`));
      return;
    }
    const held = memory.peak_bytes - (memory.before_bytes || 0);
    card.append(element("div", "big", bytes(held)));
    const verdict = memory.kept ? "budget kept" : "budget not kept";
    card.append(element("div", memory.kept ? "good" : "bad", `of ${bytes(memory.budget_bytes)}: ${verdict}`));
    card.append(track([{ kind: "range", from: 0, to: Math.min(1, held / memory.budget_bytes) }]));
  }

  const COLORS = { build: "#7a5af8", calibrate: "#d9822b", plan: "#12a594", execute: "#2f6fde", other: "#98a2b3" };

  function timeCard() {
    const seconds = stats.seconds;
    const card = panel("cards", "Time");
    card.append(element("div", "big", `${seconds.total.toFixed(1)} s`));
    const phases = ["build", "calibrate", "plan", "execute"].filter((name) => seconds[name] !== null);
    let from = 0;
    const parts = phases.map((name) => {
      const part = { kind: "part", from, to: from + seconds[name] / seconds.total, color: COLORS[name] };
      from = part.to;
      return { ...part, title: `${name}: ${seconds[name].toFixed(2)} s` };
    });
    card.append(track(parts));
    for (const name of phases) {
      const line = element("div", "note", `■ ${name}: ${seconds[name].toFixed(2)} s`);
      line.style.color = COLORS[name];
      card.append(line);
    }
  }

  // Charts --------------------------------------------------------------------------------------------------------

  function curveChart() {
    const { thresholds, pairs } = data.curve;
    if (thresholds.length < 2) return;
    const side = isSimilarity ? "at least that alike" : "at most that far apart";
    chart("Pairs by threshold", `how many pairs are ${side}`, {
      scales: { x: { time: false } },
      axes: [{ label: data.value }, { size: 80, values: (_, all) => all.map(count) }],
      series: [{ label: data.value, value: (_, v) => (v === null ? "" : v.toFixed(4)) }, line("pairs", { value: (_, v) => (v === null ? "" : count(v)) })],
    }, [thresholds, pairs]);
  }

  function sizesChart() {
    if (!data.sizes.length) return;
    const note = `${count(data.clusters_total)} clusters of ${count(data.clustered_rows)} rows, by their number of rows`;
    chart("Cluster sizes", note, {
      scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
      axes: [{ label: "rows of a cluster" }, { size: 80, values: (_, all) => all.map((v) => (v === null ? "" : count(v))) }],
      series: [{ label: "rows" }, line("clusters", { width: 0, fill: undefined, points: { show: true, size: 7, fill: "#2f6fde" } })],
    }, [data.sizes.map((one) => one[0]), data.sizes.map((one) => one[1])]);
  }

  function memoryChart() {
    const samples = stats && stats.memory.over_time;
    if (!samples || samples.length < 2) return;
    const budget = stats.memory.budget_bytes;
    chart("Memory over time", "resident memory of the process, and the budget", {
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(high, budget) * 1.05] } },
      axes: [{ label: "seconds" }, { size: 80, values: (_, all) => all.map(bytes) }],
      series: [
        { label: "s", value: (_, v) => (v === null ? "" : v.toFixed(2)) },
        line("resident", { value: (_, v) => (v === null ? "" : bytes(v)) }),
        { label: "budget", stroke: "#d9822b", width: 1, dash: [6, 4], value: (_, v) => (v === null ? "" : bytes(v)) },
      ],
    }, [samples.map((one) => one[0]), samples.map((one) => one[1]), samples.map(() => budget)]);
  }

  // Explorer ------------------------------------------------------------------------------------------------------

  const ROW_HEIGHT = 76;
  const { names, sides, pairs } = data;
  const haystack = names.map(([id, text]) => `${id}\n${text}`.toLowerCase());
  const view = { what: "pairs", words: [], closestFirst: true, rows: [] };

  const matches = (name) => view.words.every((word) => haystack[name].includes(word));

  // Pairs come closest first. A pair is shown where one of its two names has all words.
  function pairRows() {
    const rows = [];
    for (let k = 0; k < pairs.left.length; k += 1) {
      if (!view.words.length || matches(pairs.left[k]) || matches(pairs.right[k])) rows.push(k);
    }
    return view.closestFirst ? rows : rows.reverse();
  }

  // Each cluster is a head and its members, largest cluster first: pairs of [cluster, member or -1].
  function clusterRows() {
    const rows = [];
    data.clusters.forEach((members, cluster) => {
      if (view.words.length && !members.some(matches)) return;
      rows.push([cluster, -1]);
      members.forEach((member) => rows.push([cluster, member]));
    });
    return rows;
  }

  function named(name) {
    const made = element("div");
    const [id, text] = names[name];
    made.append(element("div", "id", sides.length ? `${sides[name] ? "right" : "left"} ${id}` : id));
    const shown = element("div", "text");
    highlight(shown, text || id);
    made.append(shown);
    return made;
  }

  function highlight(place, text) {
    const lower = text.toLowerCase();
    // Where lower case has another length, places would be off.
    const words = lower.length === text.length ? view.words : [];
    let from = 0;
    while (from < text.length) {
      const found = words.map((word) => [lower.indexOf(word, from), word.length]).filter(([at]) => at >= 0);
      if (!found.length) break;
      const [at, length] = found.reduce((a, b) => (b[0] < a[0] ? b : a));
      place.append(text.slice(from, at), element("mark", "", text.slice(at, at + length)));
      from = at + length;
    }
    place.append(text.slice(from));
  }

  function rowOf(index) {
    const row = view.rows[index];
    if (view.what === "pairs") {
      const made = element("div", "row");
      made.append(element("div", "value", pairs.value[row].toFixed(4)), named(pairs.left[row]), named(pairs.right[row]));
      return made;
    }
    const [cluster, member] = row;
    if (member < 0) {
      return element("div", "row member head", `${count(data.clusters[cluster].length)} rows`);
    }
    const made = element("div", "row member");
    made.append(element("div"), named(member));
    return made;
  }

  // Only the rows in sight are in the document.
  function draw() {
    const list = byId("list");
    const first = Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - 4);
    const last = Math.min(view.rows.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW_HEIGHT) + 4);
    const drawn = [];
    for (let index = first; index < last; index += 1) {
      const row = rowOf(index);
      row.style.top = `${index * ROW_HEIGHT}px`;
      drawn.push(row);
    }
    byId("space").replaceChildren(...drawn);
  }

  function refresh() {
    view.rows = view.what === "pairs" ? pairRows() : clusterRows();
    byId("space").style.height = `${view.rows.length * ROW_HEIGHT}px`;
    byId("list").scrollTop = 0;
    byId("order").hidden = view.what !== "pairs";
    byId("order").textContent = view.closestFirst ? "closest first" : "farthest first";
    const heads = view.rows.filter((row) => row[1] === -1).length;
    byId("shown").textContent = view.what === "pairs"
      ? `${count(view.rows.length)} of ${count(data.total)} pairs` + (pairs.left.length < data.total ? `, of the closest ${count(pairs.left.length)}` : "")
      : `${count(heads)} of ${count(data.clusters_total)} clusters`;
    for (const what of ["pairs", "clusters"]) byId(`show-${what}`).setAttribute("aria-pressed", view.what === what);
    draw();
  }

  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      view.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      refresh();
    }, 120);
  });
  byId("order").addEventListener("click", () => { view.closestFirst = !view.closestFirst; refresh(); });
  for (const what of ["pairs", "clusters"]) {
    byId(`show-${what}`).addEventListener("click", () => { view.what = what; refresh(); });
  }
  byId("list").addEventListener("scroll", draw);
  window.addEventListener("resize", draw);

  describe();
  if (stats) {
    if (stats.recall) recallCard();
    memoryCard();
    timeCard();
  }
  curveChart();
  sizesChart();
  memoryChart();
  refresh();
})();
