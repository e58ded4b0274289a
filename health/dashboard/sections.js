// The sections of the page, one function each.

// places are the ids of what is shown, by its key: the names themselves are
// anything, and no ids.
const places = new Map();
function place(node, key) {
  if (!places.has(key)) places.set(key, `place-${places.size + 1}`);
  mark(node, "id", places.get(key));
}

function drawHead(view) {
  say($("instance"), view.instance || "Holdfast");
  const state = $("state");
  mark(state, "data-is", view.state);
  say(state, STATES[view.state] || view.state);
  show(state, true);
  say($("about"), `Holdfast ${view.version} · up ${view.uptime_s < 1 ? "since just now" : bound(view.uptime_s * 1000)}`);
}

function drawTiles(view) {
  const sum = (f) => view.routes.reduce((n, r) => n + f(r), 0);
  const failed = sum((r) => r.failed.lately || 0);
  const waiting = view.lanes.reduce((n, l) => n + l.waiting, 0);
  const oldestMs = Math.max(0, ...view.lanes.map((l) => l.oldest_ms));
  const busy = view.lanes.reduce((n, l) => n + (l.counts.busy || 0) + (l.counts.abandoned || 0), 0);
  const slots = view.lanes.reduce((n, l) => n + l.slots, 0);
  const held = Object.values(view.holds.open).reduce((n, k) => n + k, 0);
  facts($("tiles"), [
    ["Requests a second", rate(view.requests_per_s), view.requests_per_s === null ? "not known yet" : "over the last seconds"],
    ["Failed", view.lately_ms === null ? "–" : count(failed), view.lately_ms === null ? "not known yet" : lately(view.lately_ms), failed ? "bad" : ""],
    ["Waiting", count(waiting), waiting ? `oldest ${time(oldestMs)}` : "nobody waits", waiting ? "warn" : ""],
    ["Slots in use", `${count(busy)} of ${count(slots)}`, `in ${counted(view.lanes.length + (view.more_lanes || 0), "lane")}`],
    ["Holds", count(held), view.holds.limit ? `of ${count(view.holds.limit)} at most` : ""],
    ["Events a second", rate(view.events.published_per_s), `${rate(view.events.offered_per_s)} given to holds`],
  ]);
}

function drawLanes(view) {
  list($("lanes"), view.lanes, (l) => l.name, makeLane, updateLane);
  tellMore("lanes", view.more_lanes, "lane", "those with the most to see are above");
}

function tellMore(what, n, one, why) {
  show($(`more-${what}`), Boolean(n));
  if (n) say($(`more-${what}`), `and ${count(n)} more ${n === 1 ? one : one + "s"}; ${why}`);
}

function makeLane(lane) {
  const row = {
    about: el("small"), slots: el("div", { class: "slots", "aria-hidden": "true" }), counts: el("p", { class: "counts" }),
    queue: el("p", { class: "queue" }), meter: gauge(`Queue of lane ${lane.name}`), refused: el("ul", { class: "refused" }), drawn: null,
  };
  row.node = el("article", { class: "lane", role: "listitem", "aria-label": `Lane ${lane.name}` },
    el("div", { class: "head" }, el("h3", null, lane.name), row.about), el("div", null, row.slots, row.counts), el("div", null, row.meter.node, row.queue), row.refused);
  place(row.node, `lane ${lane.name}`);
  return row;
}

function updateLane(row, lane) {
  say(row.about, `${counted(lane.slots, "slot")} at ${lane.upstream}${lane.stream ? ", streams" : ""}`);
  drawSlots(row, lane);
  list(row.counts, Object.values(SLOTS).filter((state) => lane.counts[state]), (state) => state, (state) => ({ node: el("span", { class: state[0] }) }), (part, state) => {
    const longest = lane.longest_ms[state];
    say(part.node, `${count(lane.counts[state])} ${state}${longest > 999 ? ` (longest ${time(longest)})` : ""}`);
  });
  if (lane.stream) {
    show(row.meter.node, false);
    say(row.queue, "no queue");
  } else {
    const late = lane.oldest_ms > lane.queue_timeout_ms / 2;
    const words = lane.waiting ? `${count(lane.waiting)} waiting, ${count(lane.queue)} may · oldest ${time(lane.oldest_ms)} of ${bound(lane.queue_timeout_ms)}` : `nobody waits, ${count(lane.queue)} may`;
    fill(row.meter, lane.queue ? lane.waiting / lane.queue : lane.waiting, words, lane.waiting ? (late ? "bad" : "warn") : "");
    say(row.queue, words);
    style(row.queue, lane.waiting ? "queue waits" : "queue");
  }
  const refused = Object.entries(lane.refused);
  show(row.refused, refused.length > 0);
  list(row.refused, refused, ([reason]) => reason, ([reason]) => {
    const n = el("b");
    return { node: el("li", null, n, el("span", null, ` ${REASONS[reason] || ""}`)), n };
  }, (part, [reason, c]) => {
    say(part.n, `${reason} ${c.lately ? `${count(c.lately)} lately, ` : ""}${count(c.n)} since the start.`);
    style(part.node, c.lately ? "now" : "");
  });
}

// drawSlots draws each slot, or, where there are too many, how they are divided.
// It touches only what has changed.
function drawSlots(row, lane) {
  if (lane.states === "") {
    style(row.slots, "slots whole");
    row.drawn = null;
    list(row.slots, Object.entries(SLOTS).filter(([, state]) => lane.counts[state]), ([letter]) => letter, ([letter]) => ({ node: el("i", { class: `part ${letter}` }) }), (part, [, state]) => {
      part.node.style.flexBasis = `${(lane.counts[state] / lane.slots) * 100}%`;
    });
    return;
  }
  if (row.drawn === lane.states) return;
  if (row.drawn === null) {
    row.slots.replaceChildren();
    row.slots.kept = undefined;
  }
  row.drawn = lane.states;
  style(row.slots, "slots");
  let i = 0;
  for (const [, letter, n] of lane.states.matchAll(/([a-z])(\d+)/g)) {
    for (const end = i + Number(n); i < end; i++) {
      const node = row.slots.children[i] || row.slots.appendChild(el("i"));
      style(node, `slot ${letter}`);
    }
  }
  while (row.slots.children.length > i) row.slots.lastChild.remove();
}

function drawTargets(view) {
  const sorted = [...view.targets].sort((a, b) => a.up - b.up);
  table($("targets"), [
    { title: "Target", text: (t) => t.name, class: "mono" },
    { title: "Upstream", text: (t) => t.upstream },
    { title: "State", text: (t) => (t.up ? "● up" : "✕ down"), mark: (t) => (t.up ? "good" : "bad") },
    { title: "For", text: (t) => time(t.ms), class: "n" },
    { title: "Last error", class: "long", text: (t) => (t.last_error ? targetError(t) + (t.up ? ", before it was up" : "") : "") },
  ], sorted, (t) => `${t.upstream} ${t.name}`, (node, t) => place(node, `target ${t.upstream} ${t.name}`));
  tellMore("targets", view.more_targets, "target", "those that are down are above");
}

function drawRoutes(view) {
  say($("routes-about"), view.lately_ms === null ? "Rates and times are there in a moment." :
    `Rates are of the last seconds; times, failures and errors are counted ${lately(view.lately_ms)}. Times are estimated, as from the metrics.`);
  const failing = (r) => r.failed.lately || 0;
  const asked = view.routes.filter((r) => r.requests.n > 0);
  asked.sort((a, b) => failing(b) - failing(a) || b.requests.n - a.requests.n);
  table($("routes"), [
    { title: "Route", text: routeName, class: "mono" },
    { title: "Lane", text: (r) => r.lane || "" },
    { title: "A second", text: (r) => rate(r.per_s), class: "n" },
    { title: "p50", text: (r) => time(r.p50_ms), class: "n", mark: (r) => (r.p50_ms === null ? "off" : "") },
    { title: "p99", text: (r) => (r.p99_beyond ? ">" : "") + time(r.p99_ms), class: "n", mark: (r) => (r.p99_ms === null ? "off" : "") },
    { title: "Failed", text: (r) => (view.lately_ms === null ? "–" : count(failing(r))), class: "n", mark: (r) => (failing(r) ? "bad" : "off") },
    { title: "Errors by reason", class: "long", text: errorWords },
  ], asked, (r) => r.name, (node, r) => place(node, `route ${r.name}`));
  const idle = view.routes.length - asked.length; // where there are some, those left out are idle too
  const rest = idle + (view.more_routes || 0);
  show($("more-routes"), rest > 0);
  say($("more-routes"), idle ? `${counted(rest, "route")} ${rest === 1 ? "has" : "have"} not been asked yet` : `and ${counted(rest, "more route", "more routes")}; those that fail or are asked most are above`);
}

function errorWords(route) {
  const all = Object.entries(route.errors).sort(([, a], [, b]) => (b.lately || 0) - (a.lately || 0) || b.n - a.n);
  return all.map(([reason, c]) => (c.lately ? `${reason} ${count(c.lately)} (${count(c.n)} since the start)` : `${reason} ${count(c.n)} since the start`)).join(", ");
}

function drawHolds(view) {
  const { holds, events } = view;
  facts($("holds"), [
    ...Object.entries(KINDS).map(([kind, name]) => [name, count(holds.open[kind] || 0)]),
    ["Gaps told", count(holds.gaps_told.n)],
    ["Events published", count(events.published.n)],
    ["Given to holds", count(events.offered.n)],
    ...(view.bus ? [["Bus", `${view.bus.kind}, ${view.bus.connected ? "connected" : "away"}`]] : []),
  ]);
  const ended = Object.entries(holds.ended).sort(([, a], [, b]) => b.n - a.n);
  show($("no-ends"), ended.length === 0);
  table($("ends"), [
    { title: "Reason", text: ([reason]) => reason, class: "mono" },
    { title: "Lately", text: ([, c]) => count(c.lately || 0), class: "n", mark: ([, c]) => (c.lately ? "" : "off") },
    { title: "Since the start", text: ([, c]) => count(c.n), class: "n" },
    { title: "What it means", class: "long", text: ([reason]) => ENDS[reason] || "" },
  ], ended, ([reason]) => reason);
  const top = holds.top || [];
  const rest = holds.channels - top.length;
  say($("channels-about"), holds.channels === 0 ? "No channel has a hold." : !holds.named ? `${counted(holds.channels, "channel")} ${holds.channels === 1 ? "has" : "have"} holds. Their names are told on this machine, or with a key.` :
    rest > 0 ? `The ${count(top.length)} with the most holds, and ${count(rest)} more.` : `${counted(holds.channels, "channel")} with holds.`);
  table($("channels"), [
    { title: "Channel", text: (c) => c.name, class: "mono" },
    { title: "Holds", text: (c) => count(c.holds), class: "n" },
  ], top, (c) => c.name);
}

function drawRoom(view) {
  const b = view.bytes;
  const items = [
    ["Memory for bodies and answers", b.memory, b.memory_limit, 0.9],
    ["Spool", b.spool, b.spool_limit, 0.8],
    ["Journal", b.journal, b.journal_limit, 2], // full is as it should be
    ["Outboxes of slow clients", b.outbox, 0, 0],
  ];
  list($("room"), items, (item) => item[0], ([name]) => {
    const value = el("dd"), meter = gauge(name);
    return { node: el("div", { class: "item" }, el("dt", null, name), value, el("dd", { class: "gauge" }, meter.node)), value, meter };
  }, (row, [name, n, most, high]) => {
    const words = most ? `${bytes(n)} of ${bytes(most)}` : name === "Spool" ? "none" : bytes(n);
    say(row.value, words);
    show(row.meter.node.parentNode, Boolean(most));
    if (most) fill(row.meter, n / most, words, n / most >= high ? "warn" : "");
  });
}

function drawLegend() {
  for (const [letter, state] of Object.entries(SLOTS)) $("legend").append(el("span", null, el("i", { class: `slot ${letter}` }), state));
}

function drawWords() {
  const box = $("words");
  for (const [title, words] of [["Slots", SLOT_WORDS], ["Why a request was refused or failed", REASONS], ["How a hold ended", ENDS]]) {
    box.append(el("h3", null, title));
    for (const [word, meaning] of Object.entries(words)) box.append(el("dt", { class: "mono" }, word), el("dd", null, meaning));
  }
}

// draw shows a view and gives what is wrong in it.
function draw(view) {
  show($("main"), true);
  drawHead(view);
  drawTiles(view);
  drawLanes(view);
  drawTargets(view);
  drawRoutes(view);
  drawHolds(view);
  drawRoom(view);
  return drawProblems(view);
}
