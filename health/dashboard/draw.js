// How things get onto the page. All that is shown is text: nothing is ever read as HTML.

const $ = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// What is the same is left alone, so that a page that is looked at costs little
// and a selection in it stays.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
function mark(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}
function style(node, names) {
  if (node.className !== names) node.className = names;
}
function show(node, shown) {
  if (node.hidden === shown) node.hidden = !shown;
}

// list keeps a box's children in step with items: each has a key, is made once
// and updated from then on.
function list(box, items, keyOf, make, update) {
  const kept = (box.kept ||= new Map());
  const seen = new Set();
  let at = box.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    if (seen.has(key)) continue;
    seen.add(key);
    let row = kept.get(key);
    if (!row) kept.set(key, (row = make(item)));
    update(row, item);
    if (row.node === at) at = at.nextElementSibling;
    else box.insertBefore(row.node, at);
  }
  for (const [key, row] of kept) {
    if (!seen.has(key)) {
      row.node.remove();
      kept.delete(key);
    }
  }
}

// table is list for a table. A column has a title, the text of its cell, and
// perhaps a class (n: a number, long: words). Roles are written out: a table that is laid out
// as cards on a narrow page would lose them.
function table(node, columns, items, keyOf, update) {
  if (!node.tBodies.length) {
    if (columns.length > 2) node.className = "cards";
    const head = el("tr", { role: "row" });
    for (const c of columns) head.append(el("th", { role: "columnheader", scope: "col", class: c.class === "n" ? "n" : "" }, c.title));
    node.append(el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }));
  }
  const make = () => {
    const tr = el("tr", { role: "row" });
    const cells = columns.map((c, i) => {
      const text = el("span");
      const cell = el(i ? "td" : "th", i ? { role: "cell", "data-is": c.title } : { role: "rowheader", scope: "row" }, text);
      tr.append(cell);
      return { cell, text };
    });
    return { node: tr, cells };
  };
  list(node.tBodies[0], items, keyOf, make, (row, item) => {
    columns.forEach((c, i) => {
      const { cell, text } = row.cells[i];
      const words = c.text(item);
      say(text, words);
      style(cell, [c.class, c.mark && c.mark(item), words === "" ? "none" : ""].filter(Boolean).join(" "));
    });
    if (update) update(row.node, item);
  });
}

// facts is list for a description list: [key, value, also, class].
function facts(box, items) {
  list(box, items, (item) => item[0], ([name]) => {
    const value = el("dd"), also = el("dd", { class: "also" });
    return { node: el("div", null, el("dt", null, name), value, also), value, also };
  }, (row, [, value, also, names]) => {
    say(row.value, value);
    say(row.also, also || "");
    show(row.also, Boolean(also));
    style(row.node, names || "");
  });
}

function gauge(label) {
  const fill = el("i");
  return { node: el("div", { class: "meter", role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" }, fill), fill };
}

function fill(meter, part, words, names) {
  const percent = Math.max(0, Math.min(100, part * 100));
  mark(meter.node, "aria-valuenow", String(Math.round(percent)));
  mark(meter.node, "aria-valuetext", words);
  style(meter.node, names ? `meter ${names}` : "meter");
  const width = `${percent > 0 ? Math.max(percent, 1).toFixed(1) : 0}%`;
  if (meter.fill.style.width !== width) meter.fill.style.width = width;
}
