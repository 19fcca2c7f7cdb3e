"use strict";
// The cards and charts of a result.
(() => {
  const { data, byId, element, count, bytes, panel, track, chart, line } = page;
  const stats = data.stats;
  // Facts about a comparison of texts.
  const ofTexts = stats && stats.dedupe && stats.dedupe.text;
  const isSimilarity = data.value !== "distance";
  const percent = (part, whole) => `${((100 * part) / whole).toFixed(1)} %`;
  const plural = (number, unit, units = `${unit}s`) => `${count(number)} ${number === 1 ? unit : units}`;

  // Summary -------------------------------------------------------------------------------------------------------

  // What the statistics of each command state about the threshold or the number of hits.
  function target() {
    const own = stats.join || stats.dedupe || {};
    if (ofTexts) return `Jaccard similarity at least ${ofTexts.min_jaccard}`;
    if (typeof own.eps === "number") return `at most ${own.eps} apart`;
    if (typeof own.min_similarity === "number") return `at least ${own.min_similarity} alike`;
    const { k } = stats.nearest || stats.search || {};
    return k ? `${k} nearest` : "";
  }

  function describe() {
    const titles = {
      pairs: () => plural(data.total, "pair"),
      removed: () => plural(data.total, "removed row"),
      clusters: () => `${plural(data.clusters_total, "cluster")} of ${plural(data.clustered_rows, "row")}`,
      hits: () => `${plural(data.total, "hit")} of ${plural(data.queries, "query", "queries")}`,
    };
    byId("title").textContent = titles[data.kind]();
    document.title = `${byId("title").textContent} – adjoin`;
    const parts = [data.source];
    if (stats) {
      const others = stats.join && stats.join.with_rows;
      const rows = typeof others === "number" ? `${count(stats.rows)} with ${count(others)}` : count(stats.rows);
      parts.push(ofTexts ? plural(stats.rows, "text") : `${rows} vectors of ${stats.dimensions} ${stats.element}`, target());
    }
    byId("subtitle").textContent = parts.filter(Boolean).join(" · ");
  }

  function removedCard() {
    const { near, equal, decided } = data.causes;
    const card = panel("cards", "Removed rows");
    card.append(element("div", "big", count(data.total)));
    const all = stats && stats.dedupe && stats.dedupe.source_rows;
    if (all) card.append(element("div", "", `of ${plural(all, "row")}: ${percent(data.total, all)}`));
    if (all) card.append(track([{ kind: "range", from: 0, to: data.total / all }]));
    for (const [rows, why] of [[near, "near a kept row"], [equal, "equal in text to a kept row"], [decided, "by decision"]]) {
      if (rows) card.append(element("div", "note", `${count(rows)} ${why}`));
    }
  }

  function recallCard() {
    const recall = stats.recall;
    const parts = [["of all pairs", recall.pair], ["of the average vector's", recall.per_vector], ["of the hits of queries", recall.at_k]];
    const known = parts.filter(([, part]) => part);
    if (!known.length && !ofTexts) return;
    const card = panel("cards", "Recall");
    const verdict = recall.kept ? "promise kept" : "promise not kept";
    card.append(element("div", "big", (ofTexts ? ofTexts.promised_recall : known[0][1].estimate).toFixed(4)));
    card.append(element("div", recall.kept ? "good" : "bad", `${recall.target} was asked: ${verdict}`));
    if (ofTexts) {
      card.append(element("div", "note", "of the pairs at the threshold are compared"));
      return;
    }
    // A scale from a little below what is of interest.
    const least = Math.max(0, Math.min(recall.target, ...known.map(([, part]) => part.low)) - 0.02);
    const at = (value) => (value - least) / (1 - least || 1);
    for (const [name, part] of known) {
      card.append(element("div", "note", `${name}: ${part.low.toFixed(4)} to ${part.high.toFixed(4)}`));
      card.append(track([
        { kind: "range", from: at(part.low), to: at(part.high) },
        { kind: "point", from: at(part.estimate) },
        { kind: "target", from: at(recall.target), title: `asked: ${recall.target}` },
      ]));
    }
    const sampled = [[recall.sample_vectors_with_neighbors, "sampled vectors"], [recall.sample_queries, "sampled queries"]];
    const from = sampled.find(([number]) => typeof number === "number");
    card.append(element("div", "note", from ? `from ${count(from[0])} ${from[1]}` : "by proof"));
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
    const [title, note] = {
      pairs: ["Pairs by threshold", `how many pairs are ${side}`],
      removed: ["Removed rows by threshold", `how many removed rows and their kept rows are ${side}`],
      hits: ["Hits by threshold", `how many queries and hits are ${side}`],
    }[data.kind];
    chart(title, note, {
      scales: { x: { time: false } },
      axes: [{ label: data.value }, { size: 80, values: (_, all) => all.map(count) }],
      series: [{ label: data.value, value: (_, v) => (v === null ? "" : v.toFixed(4)) }, line(data.kind === "removed" ? "rows" : data.kind, { value: (_, v) => (v === null ? "" : count(v)) })],
    }, [thresholds, pairs]);
  }

  function sizesChart() {
    if (!data.sizes.length) return;
    const note = data.kind === "removed"
      ? `${plural(data.clusters_total, "kept row")} with the rows removed for them, by the number of both`
      : `${plural(data.clusters_total, "cluster")} of ${plural(data.clustered_rows, "row")}, by their number of rows`;
    const most = Math.max(...data.sizes.map((one) => one[0]));
    const labeled = (v) => ([1, 2, 3, 5].includes(Math.round(v / 10 ** Math.floor(Math.log10(v)))) ? v : null);
    chart("Cluster sizes", note, {
      scales: { x: { time: false, distr: 3, range: () => [1, Math.max(10, 1.1 * most)] }, y: { distr: 3 } },
      // Only powers of ten have labels by default, which few clusters reach. Labels of all numbers would overlap.
      axes: [{ label: "rows of a cluster", ...(most < 30 ? { filter: (_, splits) => splits.map(labeled) } : {}) }, { size: 80, values: (_, all) => all.map((v) => (v === null ? "" : count(v))) }],
      series: [{ label: "rows" }, line("clusters", { width: 0, fill: undefined, points: { show: true, size: 7, fill: "#2f6fde" } })],
    }, [data.sizes.map((one) => one[0]), data.sizes.map((one) => one[1])]);
  }

  function memoryChart() {
    const samples = stats && stats.memory.over_time;
    if (!samples || samples.length < 2) return;
    const budget = stats.memory.budget_bytes;
    const most = Math.max(...samples.map((one) => one[1]));
    // On an axis up to a budget far above the memory in use, the curve would be a flat line.
    const showsBudget = budget <= 4 * most;
    const note = `resident memory of the process${showsBudget ? ", and the budget" : `; the budget is ${bytes(budget)}`}`;
    const budgetLine = { label: "budget", stroke: "#d9822b", width: 1, dash: [6, 4], points: { show: false }, value: (_, v) => (v === null ? "" : bytes(v)) };
    chart("Memory over time", note, {
      scales: { x: { time: false }, y: { range: () => [0, (showsBudget ? Math.max(most, budget) : most) * 1.05] } },
      axes: [{ label: "seconds" }, { size: 80, values: (_, all) => all.map(bytes) }],
      series: [
        { label: "s", value: (_, v) => (v === null ? "" : v.toFixed(2)) },
        line("resident", { value: (_, v) => (v === null ? "" : bytes(v)) }),
        ...(showsBudget ? [budgetLine] : []),
      ],
    }, [samples.map((one) => one[0]), samples.map((one) => one[1]), ...(showsBudget ? [samples.map(() => budget)] : [])]);
  }

  // How many lines have each value of a column with few values.
  function sharesChart({ column, lines, rows }) {
    const side = data.kind === "hits" ? 1 : 0;
    const all = new Map();
    for (const share of lines) {
      const known = all.get(share[side]) || { lines: 0, across: 0 };
      known.lines += share[2];
      if (share[0] !== share[1]) known.across += share[2];
      all.set(share[side], known);
    }
    const sorted = [...all].sort((a, b) => b[1].lines - a[1].lines);
    const totals = new Map(rows || []);
    const unit = { pairs: "Pairs", removed: "Removed rows", clusters: "Rows of clusters", hits: "Hits" }[data.kind];
    const card = panel("charts", `${unit} by ${column}`);
    const most = sorted[0][1].lines;
    for (const [value, { lines: number, across }] of sorted) {
      const whole = totals.get(value);
      const bar = element("div", "bar");
      const label = element("span", "", value || "(none)");
      label.title = value;
      const range = { kind: "range", from: 0, to: whole ? Math.min(1, number / whole) : number / most };
      const figures = whole ? `${count(number)} of ${count(whole)}: ${percent(number, whole)}` : `${count(number)}: ${percent(number, data.total)}`;
      const note = element("span", "", figures);
      if (across && ["pairs", "removed"].includes(data.kind)) note.title = `${count(across)} with a row of another ${column}`;
      bar.append(label, track([range]), note);
      card.append(bar);
    }
    const across = sorted.reduce((sum, [, one]) => sum + one.across, 0);
    const notes = [totals.size ? `fraction of the rows of each ${column} that is removed` : `fraction of all ${unit.toLowerCase()}`];
    if (data.kind === "pairs") notes.push(`by the left row; ${count(across)} with a right row of another ${column}`);
    if (data.kind === "removed") notes.push(`${count(across)} have a kept row of another ${column}`);
    card.append(element("div", "note", notes.join("; ")));
  }

  describe();
  if (data.kind === "removed") removedCard();
  if (stats) {
    if (stats.recall) recallCard();
    memoryCard();
    timeCard();
  }
  curveChart();
  sizesChart();
  data.shares.forEach(sharesChart);
  memoryChart();
})();
