// Everything that is shown works without this; it adds sorting, filtering, a search, CSV, themes,
// copying, folded sections on a phone, and the lanes of the step that is chosen.
"use strict";
(function () {
  const all = (query, from) => Array.from((from || document).querySelectorAll(query));
  const make = (tag, text, attributes) => {
    const element = document.createElement(tag);
    if (text) element.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    return element;
  };
  const button = (text, label, action) => {
    const element = make("button", text, { type: "button", "aria-label": label, title: label });
    element.addEventListener("click", action);
    return element;
  };

  // ---- Theme

  const root = document.documentElement;
  const theme = document.getElementById("theme");
  const is_dark = () => root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const name_theme = () => { theme.textContent = is_dark() ? "Light theme" : "Dark theme"; };
  theme.addEventListener("click", () => {
    root.dataset.theme = is_dark() ? "light" : "dark";
    name_theme();
  });
  name_theme();
  theme.hidden = false;

  // ---- Tables

  const value_of = cell => cell.dataset.v === undefined ? cell.textContent
    : cell.dataset.v === "" ? null : Number(cell.dataset.v);
  const before = (a, b) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  };

  function sort(table, column) {
    const heads = all("thead th", table);
    // Numbers are looked through from the largest, names from A.
    const first = heads[column].classList.contains("n") ? "descending" : "ascending";
    const now = heads[column].getAttribute("aria-sort");
    const order = !now ? first : now === "ascending" ? "descending" : "ascending";
    heads.forEach(head => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", order);
    order_rows(table, column, order);
  }

  function order_rows(table, column, order) {
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    Array.from(body.rows)
      .map((row, at) => ({ row, at, value: value_of(row.cells[column]) }))
      .sort((a, b) => {
        const unknown = (a.value === null) - (b.value === null);  // last in both orders
        return unknown || sign * before(a.value, b.value) || a.at - b.at;
      })
      .forEach(entry => body.append(entry.row));
  }

  function csv_of(table) {
    // An apostrophe keeps spreadsheets from computing what begins like a formula.
    const plain = text => /^[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text)) ? "'" + text : text;
    const quoted = text => /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
    const rows = [all("thead th", table).map(head => head.dataset.k)];
    for (const row of table.tBodies[0].rows)
      rows.push(Array.from(row.cells, cell => cell.dataset.v === undefined ? cell.textContent : cell.dataset.v));
    return rows.map(row => row.map(plain).map(quoted).join(",")).join("\r\n") + "\r\n";
  }

  function download(table) {
    const url = URL.createObjectURL(new Blob([csv_of(table)], { type: "text/csv" }));
    const link = make("a", "", { href: url, download: table.dataset.key.replace(/[^\w-]+/g, "_") + ".csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  const has_words = text => {  // a node of the tree is also found by its path
    const words = text.toLowerCase().split(/\s+/);
    return element => {
      const name = element.querySelector(".name");
      const content = ((name ? name.title + " " : "") + element.textContent).toLowerCase();
      return words.every(word => content.includes(word));
    };
  };

  function filter(table, text) {  // the rows that are left
    const matches = has_words(text), rows = Array.from(table.tBodies[0].rows);
    for (const row of rows) row.hidden = !matches(row);
    return rows.filter(row => !row.hidden).length;
  }

  function filter_field(table, title) {
    const field = make("input", "", { type: "search", placeholder: "Filter", "aria-label": "Filter " + title });
    field.addEventListener("input", () => filter(table, field.value));
    return field;
  }

  for (const frame of all(".table")) {
    const table = frame.querySelector("table");
    const title = table.caption.querySelector("b").textContent;
    all("thead th", table).forEach((head, column) => {
      const press = make("button", head.textContent, { type: "button" });
      press.addEventListener("click", () => sort(table, column));
      head.replaceChildren(press);
    });
    const scroll = frame.querySelector(".scroll");
    const wider = make("p", "", { class: "wider" });
    scroll.after(wider);
    // Its text depends on the width alone, so that showing it changes no size that is observed.
    new ResizeObserver(() => {
      wider.textContent = scroll.scrollWidth > scroll.clientWidth + 1 ? "More columns to the right: scroll sideways." : "";
    }).observe(scroll);
    const tools = make("div", "", { class: "tools" });
    if ("filter" in frame.dataset) tools.append(filter_field(table, title));
    tools.append(button("CSV", "Download " + title + " as CSV", () => download(table)));
    let head = frame.querySelector(".head");
    if (!head) frame.prepend(head = make("div", "", { class: "head" }));
    head.append(tools);
  }

  // ---- The tree of modules

  const tree = document.getElementById("modules");
  if (tree) {
    const by = (key, sign) => () => {
      for (const level of all(".level", tree))
        Array.from(level.children)
          .filter(node => node.dataset.at !== undefined)
          .sort((a, b) => sign * (Number(a.dataset[key]) - Number(b.dataset[key])))
          .forEach(node => level.append(node));
      all(".level > .note", tree).forEach(note => note.parentElement.append(note));
    };
    const unfold = open => () => all(".branch", tree).forEach(branch => { branch.open = open; });
    const tools = make("div", "", { class: "tools" });
    tools.append(
      button("Longest first", "Sort modules by time", by("ns", -1)),
      button("Model order", "Sort modules in the model's order", by("at", 1)),
      button("Unfold", "Unfold all modules", unfold(true)), button("Fold", "Fold all modules", unfold(false)));
    tree.querySelector(".head").append(tools);
  }

  // Shows the nodes with these words and what is around them; how many have them themselves.
  function search_tree(text) {
    const matches = has_words(text), folded = text === "";
    let found = 0;
    for (const node of all(".level .node", tree)) {
      const is_match = matches(node), own = node.tagName === "SUMMARY" ? node.parentElement : node;
      own.hidden = !is_match;
      if (own !== node) own.open = false;
      if (!is_match || folded) continue;
      ++found;
      for (let at = own.parentElement; at && at !== tree; at = at.parentElement) {
        at.hidden = false;
        if (at.tagName === "DETAILS") at.open = true;
      }
    }
    return found;
  }

  // ---- One search over the tree and the tables that have a filter

  const searched = all(".table[data-filter]");
  if (searched.length > 0) {
    const found = make("p", "", { class: "found", role: "status" });
    const field = make("input", "", {
      type: "search", placeholder: "Search layers, calls, kernels", "aria-label": "Search layers, calls, kernels, memory" });
    const search = () => {
      const text = field.value.trim(), hits = [];
      const add = (count, title, section) => { if (count > 0) hits.push([count, title, section.id]); };
      if (tree) add(search_tree(text), "Model", tree.closest("section"));
      for (const frame of searched) {
        const table = frame.querySelector("table"), own = frame.querySelector(".tools input");
        if (own) own.value = text;
        add(filter(table, text), table.caption.querySelector("b").textContent, frame.closest("section"));
      }
      found.replaceChildren();
      if (text === "") return;
      found.append(hits.length > 0 ? "Found in: " : "Found nowhere.");
      for (const [count, title, id] of hits) found.append(make("a", title + " (" + count + ")", { href: "#" + id }));
    };
    field.addEventListener("input", search);
    const place = make("div", "", { class: "search" });
    place.append(field);
    theme.before(place);
    theme.parentElement.after(found);
  }

  // ---- Sections, folded on a phone below the first ones

  const folds = all("details.fold");
  if (matchMedia("(max-width: 34rem)").matches)
    for (const fold of folds)
      fold.open = ["findings", "comparison"].includes(fold.parentElement.id);
  const open_target = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    const fold = target.querySelector(":scope > details.fold");
    if (fold) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", open_target);
  document.addEventListener("click", event => {  // again to where the page already is
    const link = event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) open_target();
  });
  addEventListener("beforeprint", () => folds.forEach(fold => { fold.open = true; }));
  open_target();

  // ---- Options that can be copied

  for (const flag of all(".flag")) {
    const text = flag.querySelector("code").textContent;
    const copy = button("Copy", "Copy " + text, () => {
      const done = () => { copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); };
      const select = () => {  // also where a browser forbids the clipboard: the reader can copy what is selected
        getSelection().selectAllChildren(flag.querySelector("code"));
        if (document.execCommand("copy")) done();
      };
      if (navigator.clipboard && isSecureContext) navigator.clipboard.writeText(text).then(done, select);
      else select();
    });
    flag.append(copy);
  }

  // ---- Lanes

  const source = document.getElementById("lanes-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const figure = document.getElementById("lanes");
  const plot = figure.querySelector(".plot");
  const heading = figure.querySelector("h3");
  const row_height = 16, queue_height = 34, axis_height = 20, character = 7;
  const height = Number(plot.getAttribute("height"));
  const links = all("#strip a[data-step]");
  let shown = 0, from = 0, to = 1;  // the step, and the part of it from 0 to 1

  const decimals_of = value => value === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  // Of units of 100 ns; with more decimals where times that are `apart` need them to differ.
  function time(tenths, apart) {
    let value = tenths * 100, unit = 0;
    while (unit < 3 && value >= 999.5) { value /= 1000; ++unit; }
    const needed = apart > 0 ? Math.ceil(-Math.log10(apart * 100 / 1000 ** unit) - 1e-9) : 0;
    return value.toFixed(Math.max(decimals_of(value), Math.min(needed, 12))) + " " + ["ns", "us", "ms", "s"][unit];
  }
  const tick = (tenths, step) =>
    tenths === 0 ? "0" : time(tenths, step).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");
  function svg(tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text) element.textContent = text;
    return element;
  }
  const light = new Set(["c-copy", "c-sync", "c-runtime", "c-other", "c-memset", "c-cpu", "s0", "s2", "s4", "s5"]);

  const css_of_text = css => css === "c-data" ? "on-hatch" : css === "s1" || css === "s3" ? "on-deep"
    : light.has(css) ? "on-light" : "";

  // Five numbers a bar; `later`: than the end of the bar before. A merged one has
  // -1 - mix for a name, and a sixth number: how much longer it is than the sum of what it stands for.
  function bars_of(flat) {
    const bars = [];
    let end = 0;
    for (let i = 0; i < flat.length; i += flat[i + 2] < 0 ? 6 : 5) {
      const [row, css, name, later, long, gaps] = flat.slice(i, i + 6);
      const begin = end + later;
      end = begin + long;
      bars.push(name < 0 ? { row, css, begin, long, sum: long - gaps, mix: data.mixes[-1 - name] }
        : { row, css, name, begin, long });
    }
    return bars;
  }
  const name_of = ({ name, mix }) => !mix ? data.names[name]
    : mix.length === 2 && mix[0] >= 0 ? data.names[mix[0]] : "several";
  function title_of(bar) {
    if (!bar.mix) return data.names[bar.name] + ", " + time(bar.long);
    const counts = [];
    let count = 0;
    for (let i = 0; i < bar.mix.length; i += 2) {
      count += bar.mix[i + 1];
      counts.push(bar.mix[i + 1] + " " + (bar.mix[i] < 0 ? "more" : data.names[bar.mix[i]]));
    }
    const names = counts.length > 1 ? ": " + counts.join(", ")
      : bar.mix[0] < 0 ? "" : " of " + data.names[bar.mix[0]];
    return count + " bars" + names + ", " + time(bar.sum) + " in all";
  }

  function draw_bars(group, flat, length, width) {
    const top = Number(group.dataset.top), parts = [];
    for (const entry of bars_of(flat)) {
      const { row, css, begin, long } = entry;
      const x = Math.max(0, (begin / length - from) / (to - from));
      const end = Math.min(1, ((begin + long) / length - from) / (to - from));
      if (end < 0 || x > 1 || end < x) continue;
      const pixels = (end - x) * width, y = top + row * row_height;
      const bar = svg("rect", { class: data.classes[css] + (pixels > 3 ? " w" : ""), x: x * 100 + "%", y,
        width: Math.max(pixels, 1) / width * 100 + "%", height: row_height - 1 });
      bar.append(svg("title", {}, title_of(entry)));
      parts.push(bar);
      const room = Math.floor((pixels - 8) / character);
      if (room < 5) continue;
      const text = name_of(entry);
      parts.push(svg("text", { x: x * width + 4, y: y + 12, class: css_of_text(data.classes[css]) },
        text.length <= room ? text : text.slice(0, room - 1) + "\u2026"));
    }
    group.replaceChildren(...parts);
  }

  function draw_queue(queue, length) {
    const group = plot.querySelector(".depth");
    if (!group) return;
    const base = Number(group.dataset.top) + queue_height, parts = [];
    for (let i = 0; i < queue.length; i += 2) {
      const x = Math.max(0, (queue[i] / length - from) / (to - from));
      const end = Math.min(1, ((i + 2 < queue.length ? queue[i + 2] / length : 1) - from) / (to - from));
      if (end <= x || x > 1) continue;
      const high = queue[i + 1] / Math.max(data.most, 1) * (queue_height - 2);
      const bar = svg("rect", { class: "queue", x: x * 100 + "%", y: base - high, width: (end - x) * 100 + "%", height: high });
      bar.append(svg("title", {}, queue[i + 1] + " ready"));
      parts.push(bar);
    }
    group.replaceChildren(...parts);
  }

  function draw_axis(length) {
    const range = (to - from) * length, rough = range / 3, power = 10 ** Math.floor(Math.log10(rough));
    const ratio = rough / power, step = (ratio < 2 ? 1 : ratio < 5 ? 2 : 5) * power;
    const parts = [];
    for (let at = Math.ceil(from * length / step) * step; at <= to * length; at += step) {
      const share = (at / length - from) / (to - from), x = share * 100 + "%";
      parts.push(svg("line", { class: "grid", x1: x, x2: x, y1: 0, y2: height - axis_height }));
      parts.push(svg("text", { class: "tick", x, y: height - 5,
        "text-anchor": share < 0.12 ? "start" : share > 0.88 ? "end" : "middle" }, tick(at, step)));
    }
    plot.querySelector(".axis").replaceChildren(...parts);
  }

  function fill_table(step) {
    const body = figure.querySelector("tbody"), rows = [];
    data.lanes.forEach((lane, at) => {
      const sums = new Map(), flat = step.totals[at];
      for (let i = 0; i < flat.length; i += 3) sums.set(flat[i], [flat[i + 1], flat[i + 2]]);
      for (const { name, long, mix } of bars_of(step.bars[at]))  // names without a total have one
        if (!mix && !sums.has(name)) sums.set(name, [1, long * 100]);
      for (const [name, [count, ns]] of Array.from(sums).sort((a, b) => a[0] - b[0])) {
        const row = make("tr");
        row.append(make("th", lane, { scope: "row" }), make("td", data.names[name]),
          make("td", String(count), { class: "n", "data-v": count }),
          make("td", time(ns / 100), { class: "n", "data-v": ns }));
        rows.push(row);
      }
    });
    body.replaceChildren(...rows);
    const heads = all("thead th", figure), column = heads.findIndex(head => head.hasAttribute("aria-sort"));
    if (column >= 0) order_rows(figure.querySelector("table"), column, heads[column].getAttribute("aria-sort"));
    figure.querySelector("caption b").textContent = "Step " + step.step + " by lane";
  }

  function draw() {
    const step = data.steps[shown], width = plot.getBoundingClientRect().width;
    if (width <= 0) return;  // not laid out, or far outside of the window: it will be observed
    const apart = (to - from) * step.length / 100;
    const part = from > 0 || to < 1 ? ": " + time(from * step.length, apart) + " to " + time(to * step.length, apart) : "";
    heading.textContent = "Lanes of step " + step.step + ", " + time(step.length) + part;
    plot.querySelector("title").textContent = heading.textContent;
    all(".bars", plot).forEach((group, lane) => draw_bars(group, step.bars[lane], step.length, width));
    draw_queue(step.queue, step.length);
    draw_axis(step.length);
    for (const link of links)
      if (Number(link.dataset.step) === step.step) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
  }

  function choose(index) {
    if (index < 0 || index >= data.steps.length) return;
    missing.textContent = "";
    shown = index; from = 0; to = 1;
    draw();
    fill_table(data.steps[shown]);
  }

  function view(low, high) {
    const range = Math.min(Math.max(high - low, 1e-4), 1);
    from = Math.min(Math.max(low, 0), 1 - range);
    to = from + range;
    draw();
  }
  const around = factor => {
    const middle = (from + to) / 2, half = (to - from) / 2 * factor;
    view(middle - half, middle + half);
  };
  const move = share => view(from + share * (to - from), to + share * (to - from));

  // A range that is dragged over is shown larger.
  let drag = null;
  const share_at = event => {
    const box = plot.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  };
  plot.addEventListener("pointerdown", event => {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    drag = { begin: share_at(event), box: svg("rect", { class: "selection", y: 0, height: height - axis_height }) };
    plot.append(drag.box);
    event.preventDefault();
  });
  addEventListener("pointermove", event => {
    if (!drag) return;
    const end = share_at(event);
    drag.box.setAttribute("x", Math.min(drag.begin, end) * 100 + "%");
    drag.box.setAttribute("width", Math.abs(end - drag.begin) * 100 + "%");
  });
  addEventListener("pointerup", event => {
    if (!drag) return;
    const begin = drag.begin, end = share_at(event), range = to - from;
    drag.box.remove();
    drag = null;
    if (Math.abs(end - begin) > 0.01)
      view(from + Math.min(begin, end) * range, from + Math.max(begin, end) * range);
  });

  const steering = make("div", "", { class: "steering", role: "group", "aria-label": "Lanes" });
  steering.append(
    button("\u2039 step", "Step before", () => choose(shown - 1)),
    button("step \u203a", "Next step", () => choose(shown + 1)),
    button("+", "Zoom in", () => around(0.5)), button("\u2212", "Zoom out", () => around(2)),
    button("\u2190", "Earlier", () => move(-0.5)), button("\u2192", "Later", () => move(0.5)),
    button("Whole step", "Show the whole step", () => view(0, 1)),
    make("small", "Choose a step above; drag over the lanes to zoom in."));
  const missing = make("p", "", { class: "note", role: "status" });
  figure.querySelector("figcaption").after(steering, missing);
  const find = step => data.steps.findIndex(entry => entry.step === step);
  for (const link of links)
    link.addEventListener("click", event => {
      const index = find(Number(link.dataset.step));
      event.preventDefault();
      choose(index);
      if (index < 0)
        missing.textContent = "Step " + link.dataset.step + " has no lanes here: the page has those of " +
          data.steps.length + " recorded steps, to stay small.";
    });
  shown = Math.max(0, find(Number((heading.textContent.match(/\d+/) || [0])[0])));
  draw();
  new ResizeObserver(draw).observe(plot);
})();
