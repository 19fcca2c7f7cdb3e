"use strict";
// The lines of a result: searched, compared word by word, and marked to be kept or removed.
(() => {
  const { data, byId, element, count } = page;
  const { names, sides, details, pairs } = data;
  // On a narrow screen, the value and the buttons of a line have lines of their own.
  const narrow = window.matchMedia("(max-width: 700px)");
  const LINE_HEIGHT = 128;
  const NARROW_LINE_HEIGHT = 164;
  const MEMBER_HEIGHT = 96;
  const HEAD_HEIGHT = 38;
  // Longest text that the page has; a text of this length was cut.
  const CUT = 400;
  const WORDS = {
    pairs: { lines: "Pairs", groups: "Clusters", unit: "pairs", sides: ["left", "right"] },
    removed: { lines: "Removed rows", groups: "Kept rows", unit: "removed rows", sides: ["removed", "kept"] },
    clusters: { lines: "", groups: "Clusters", unit: "", sides: ["left", "right"] },
    hits: { lines: "", groups: "Queries", unit: "hits", sides: ["query", "hit"] },
  }[data.kind];
  const haystack = names.map(([id, text], k) => [id, text, ...(details[k] || [])].join("\n").toLowerCase());
  const view = { what: WORDS.lines ? "lines" : "groups", words: [], threshold: null, isReversed: false, hasImages: false, rows: [], tops: [] };
  // Marks by the position of a name.
  const marks = new Map();
  let areSaved = true;

  const matches = (name) => name !== null && view.words.every((word) => haystack[name].includes(word));

  // Texts ---------------------------------------------------------------------------------------------------------

  const textOf = (name) => names[name][1] || names[name][0];
  const split = (text) => text.match(/\s+|[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) || [];

  // Returns, for each word of two texts, whether it is in their longest common subsequence.
  function compare(left, right) {
    const [a, b] = [split(left), split(right)];
    const width = b.length + 1;
    const lengths = new Uint16Array((a.length + 1) * width);
    for (let i = a.length - 1; i >= 0; i -= 1) {
      for (let j = b.length - 1; j >= 0; j -= 1) {
        const at = i * width + j;
        lengths[at] = a[i] === b[j] ? lengths[at + width + 1] + 1 : Math.max(lengths[at + width], lengths[at + 1]);
      }
    }
    const common = [a.map(() => false), b.map(() => false)];
    let [i, j] = [0, 0];
    while (i < a.length && j < b.length) {
      if (a[i] === b[j]) {
        common[0][i] = common[1][j] = true;
        i += 1; j += 1;
      } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i += 1;
      else j += 1;
    }
    return [a.map((word, k) => [word, common[0][k]]), b.map((word, k) => [word, common[1][k]])];
  }

  // Words that differ from the other text are marked, unless a search marks its own words.
  function compared(left, right) {
    const both = [left, right].map((name) => (name === null ? null : element("div", "text")));
    const texts = [left, right].map((name) => (name === null ? "" : textOf(name)));
    if (view.words.length || left === null || right === null || texts[0] === texts[1]) {
      both.forEach((place, side) => place && highlight(place, texts[side]));
      return both;
    }
    compare(...texts).forEach((words, side) => {
      let [run, wasCommon] = ["", true];
      const flush = () => {
        if (wasCommon) both[side].append(run);
        else both[side].append(element("mark", side ? "right" : "left", run.trimEnd()), run.slice(run.trimEnd().length));
      };
      for (const [word, isCommon] of words) {
        // Space belongs to the words before it, but is not marked at their end.
        if (isCommon !== wasCommon && word.trim()) { flush(); [run, wasCommon] = ["", isCommon]; }
        run += word;
      }
      flush();
      if ([...texts[side]].length === CUT) both[side].append("…");
    });
    return both;
  }

  function highlight(place, text) {
    const lower = text.toLowerCase();
    // If lower case has another length, places would be off.
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
    if ([...text].length === CUT) place.append("…");
  }

  function plain(name) {
    const made = element("div", "text");
    highlight(made, textOf(name));
    return made;
  }

  // Images are fetched only on demand, since the page itself needs no network.
  const isImage = (text) => /\.(png|jpe?g|gif|webp|avif|svg)(\?\S*)?$/i.test(text);
  const imageOf = (name) => [...(details[name] || []), names[name][1]].find(isImage);
  // A path may have characters, such as `#`, that have another meaning in a URL.
  function addressOf(path) {
    if (/^[a-z][a-z0-9+.-]+:/i.test(path)) return path;
    const escaped = path.split("/").map(encodeURIComponent).join("/");
    return path.startsWith("/") ? `file://${escaped}` : escaped;
  }
  function image(name) {
    const path = imageOf(name);
    if (!path) return null;
    const made = element("img");
    made.loading = "lazy";
    made.alt = path;
    made.src = addressOf(path);
    return made;
  }

  // Decisions -----------------------------------------------------------------------------------------------------

  function mark(name, decision) {
    if (marks.get(name) === decision) marks.delete(name); else marks.set(name, decision);
    areSaved = false;
    showMarks();
    draw();
    if (byId("whole").open) show(view.shown);
  }

  function showMarks() {
    byId("save").disabled = !marks.size;
    byId("save").textContent = marks.size ? `Save ${count(marks.size)} decision${marks.size === 1 ? "" : "s"}` : "Save decisions";
  }

  function buttons(name) {
    const made = element("span", "marks");
    for (const decision of ["keep", "remove"]) {
      const button = element("button", "", decision);
      button.title = decision === "keep" ? "Keep this row. Rows near it are removed, unless they are marked, too." : "Remove this row.";
      button.setAttribute("aria-pressed", marks.get(name) === decision);
      button.addEventListener("click", (event) => { event.stopPropagation(); mark(name, decision); });
      made.append(button);
    }
    return made;
  }

  function save() {
    const lines = [...marks].map(([name, decision]) => `${JSON.stringify({ id: names[name][0], decision })}\n`);
    const link = element("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
    link.download = `${data.source.replace(/\.[^.]*$/, "")}.decisions.jsonl`;
    link.click();
    URL.revokeObjectURL(link.href);
    areSaved = true;
  }

  function load(text) {
    const places = new Map(names.map(([id], name) => [id, name]));
    let unknown = 0;
    for (const line of text.split("\n").filter((line) => line.trim())) {
      let row = null;
      try { row = JSON.parse(line); } catch { /* counted as unknown */ }
      const name = places.get(String(row?.id));
      if (name !== undefined && ["keep", "remove"].includes(row.decision)) marks.set(name, row.decision); else unknown += 1;
    }
    showMarks();
    refresh();
    if (unknown) byId("shown").textContent = `${count(unknown)} of the decisions are about rows that this page does not have`;
  }

  // Rows ----------------------------------------------------------------------------------------------------------

  const isSimilarity = data.value !== "distance";
  // Lines without a value, such as rows with equal texts, are within any threshold.
  const isWithin = (value) => view.threshold === null || value === null || (isSimilarity ? value >= view.threshold : value <= view.threshold);

  // A line is shown if it is within the threshold, and one of its two rows has all words.
  function lineRows() {
    const rows = [];
    for (let k = 0; k < pairs.left.length; k += 1) {
      if (!isWithin(pairs.value[k])) continue;
      if (!view.words.length || matches(pairs.left[k]) || matches(pairs.right[k])) rows.push({ line: k });
    }
    return view.isReversed ? rows.reverse() : rows;
  }

  // Each query is a head and its hits, in the order of the file.
  function queryRows() {
    const rows = [];
    for (let from = 0; from < pairs.left.length;) {
      const query = pairs.left[from];
      let end = from;
      while (end < pairs.left.length && pairs.left[end] === query) end += 1;
      const hits = Array.from({ length: end - from }, (_, k) => from + k);
      if (!view.words.length || matches(query) || hits.some((hit) => matches(pairs.right[hit]))) {
        rows.push({ query });
        hits.forEach((hit, k) => rows.push({ hit, rank: k + 1 }));
      }
      from = end;
    }
    return rows;
  }

  // Each cluster is a head and its members, largest cluster first, a kept row before the removed ones.
  function clusterRows() {
    const rows = [];
    data.clusters.forEach((members, cluster) => {
      if (view.words.length && !members.some(matches)) return;
      rows.push({ cluster });
      const kept = members.filter((member) => sides[member] === 1);
      const ordered = data.kind === "removed" ? [...kept, ...members.filter((member) => sides[member] !== 1)] : members;
      // Members are compared with the first one.
      ordered.forEach((member) => rows.push({ member, first: ordered[0] }));
    });
    return rows;
  }

  function named(name, text, label) {
    const made = element("div", "side");
    if (name === null) return made;
    const thumbnail = view.hasImages && image(name);
    if (thumbnail) made.append(thumbnail);
    const top = element("div", "idline");
    const word = label === undefined ? (sides.length ? WORDS.sides[sides[name]] : "") : label;
    const id = element("span", "id", [word, names[name][0]].filter(Boolean).join(" "));
    top.append(id);
    if (data.decidable) top.append(buttons(name));
    made.append(top, text);
    const known = (details[name] || []).map((value, k) => value && `${data.columns[k]}: ${value}`).filter(Boolean);
    if (known.length) made.append(element("div", "detail", known.join(" · ")));
    return made;
  }

  function valueOf(line) {
    if (pairs.value[line] !== null) return pairs.value[line].toFixed(4);
    return pairs.right[line] === null ? "by decision" : "equal text";
  }

  // The parts of a row, as in the list and in the dialog.
  function partsOf(row) {
    if (row.line !== undefined) {
      const both = [pairs.left[row.line], pairs.right[row.line]];
      const texts = compared(...both);
      return [element("div", "value", valueOf(row.line)), ...both.map((name, side) => named(name, texts[side]))];
    }
    if (row.hit !== undefined) {
      const [query, hit] = [pairs.left[row.hit], pairs.right[row.hit]];
      const text = compared(query, hit)[1];
      return [element("div", "value", valueOf(row.hit)), named(hit, text, `${row.rank}.`)];
    }
    if (row.query !== undefined) return [element("div"), named(row.query, plain(row.query), "query")];
    if (row.member !== undefined) {
      const text = row.member === row.first ? plain(row.member) : compared(row.first, row.member)[1];
      return [element("div"), named(row.member, text)];
    }
    return [element("div", "", `${count(data.clusters[row.cluster].length)} rows`)];
  }

  function heightOf(row) {
    if (row.line !== undefined) return narrow.matches ? NARROW_LINE_HEIGHT : LINE_HEIGHT;
    return row.cluster !== undefined ? HEAD_HEIGHT : MEMBER_HEIGHT + (view.hasImages ? 8 : 0);
  }

  function rowOf(index) {
    const row = view.rows[index];
    const isHead = row.cluster !== undefined || row.query !== undefined;
    const made = element("div", `row${row.line === undefined ? " member" : ""}${isHead ? " head" : ""}`);
    made.append(...partsOf(row));
    made.style.top = `${view.tops[index]}px`;
    made.style.height = `${heightOf(row)}px`;
    if (row.cluster === undefined) made.addEventListener("click", () => show(row));
    return made;
  }

  // Shows the whole texts of a row.
  function show(row) {
    const whole = byId("whole");
    const both = element("div", "both");
    // A hit is compared with its query next to it.
    both.append(...partsOf(row.hit === undefined ? row : { line: row.hit }).slice(1));
    const close = element("button", "", "Close");
    close.addEventListener("click", () => whole.close());
    const line = row.line ?? row.hit;
    whole.replaceChildren(element("div", "value", line === undefined ? "" : valueOf(line)), both, close);
    view.shown = row;
    if (!whole.open) whole.showModal();
  }

  // The last row that begins at or above a position.
  function rowAt(position) {
    let [low, high] = [0, view.tops.length - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (view.tops[middle] <= position) low = middle; else high = middle - 1;
    }
    return low;
  }

  // Only the rows in sight are in the document.
  function draw() {
    const list = byId("list");
    const drawn = [];
    const first = Math.max(0, rowAt(list.scrollTop) - 3);
    for (let index = first; index < view.rows.length && view.tops[index] < list.scrollTop + list.clientHeight + 300; index += 1) {
      drawn.push(rowOf(index));
    }
    byId("space").replaceChildren(...drawn);
  }

  function status() {
    if (view.what === "lines") {
      const shown = pairs.left.length < data.total ? `, of the ${data.kind === "removed" ? "farthest" : "closest"} ${count(pairs.left.length)}` : "";
      return `${count(view.rows.length)} of ${count(data.total)} ${WORDS.unit}${shown}`;
    }
    const heads = view.rows.filter((row) => row.cluster !== undefined || row.query !== undefined).length;
    const all = data.kind === "hits" ? data.queries : data.clusters_total;
    return `${count(heads)} of ${count(all)} ${WORDS.groups.toLowerCase()}`;
  }

  function refresh() {
    const groups = data.kind === "hits" ? queryRows : clusterRows;
    view.rows = view.what === "lines" ? lineRows() : groups();
    let top = 0;
    view.tops = view.rows.map((row) => { const at = top; top += heightOf(row); return at; });
    byId("space").style.height = `${top}px`;
    byId("list").scrollTop = 0;
    byId("order").hidden = view.what !== "lines";
    byId("within").hidden = view.what !== "lines" || thresholds.length < 2;
    const isClosest = (data.kind === "removed") === view.isReversed;
    byId("order").textContent = isClosest ? "closest first" : "farthest first";
    byId("shown").textContent = status();
    for (const what of ["lines", "groups"]) byId(`show-${what}`).setAttribute("aria-pressed", view.what === what);
    draw();
  }

  // Moves the threshold. Positions of the slider are the thresholds of the chart, from the strictest to the loosest.
  const { thresholds, pairs: counts } = data.curve;
  const withoutValue = data.total - Math.max(0, ...counts);
  function moveThreshold() {
    const position = Number(byId("threshold").value);
    const at = isSimilarity ? thresholds.length - 1 - position : position;
    // All lines are within the loosest threshold.
    view.threshold = position === thresholds.length - 1 ? null : thresholds[at];
    byId("within-shown").textContent = `${isSimilarity ? "≥" : "≤"} ${thresholds[at].toFixed(4)}: ${count(counts[at] + withoutValue)} ${WORDS.unit}`;
  }
  if (thresholds.length > 1) {
    byId("threshold").max = thresholds.length - 1; // before the value, which it limits
    byId("threshold").value = thresholds.length - 1;
    byId("threshold").addEventListener("input", () => { moveThreshold(); refresh(); });
    moveThreshold();
  }

  let waiting = 0;
  byId("search").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      view.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      refresh();
    }, 120);
  });
  byId("order").addEventListener("click", () => { view.isReversed = !view.isReversed; refresh(); });
  for (const what of ["lines", "groups"]) {
    const button = byId(`show-${what}`);
    button.textContent = WORDS[what];
    button.hidden = !WORDS.lines;
    button.addEventListener("click", () => { view.what = what; refresh(); });
  }
  byId("images").hidden = !names.some((_, name) => imageOf(name));
  byId("images").addEventListener("click", () => {
    view.hasImages = !view.hasImages;
    byId("images").setAttribute("aria-pressed", view.hasImages);
    refresh();
  });
  byId("decisions").hidden = !data.decidable;
  byId("save").addEventListener("click", save);
  byId("load").addEventListener("click", () => byId("load-file").click());
  byId("load-file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (file) load(await file.text());
    event.target.value = "";
  });
  window.addEventListener("beforeunload", (event) => { if (!areSaved) event.preventDefault(); });
  byId("list").addEventListener("scroll", draw);
  window.addEventListener("resize", draw);
  narrow.addEventListener("change", refresh);
  refresh();
})();
