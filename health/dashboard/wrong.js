// What is wrong, the worst first. A problem has a key that stays the same while
// it lasts, a level, a sentence, what more there is to say, and where to look.

const LEVELS = { bad: ["Fault", "✕"], warn: ["Watch", "▲"], note: ["Note", "●"] };
const OF_A_LANE = ["lane_full", "lane_timeout", "upstream_down", "draining"];
const WRONG_MOST = 12;

function problems(view) {
  const found = [];
  const add = (level, key, what, why, at) => found.push({ level, key, what, why: why || "", at });
  ofState(view, add);
  ofTargets(view, add);
  for (const lane of view.lanes) ofLane(view, lane, add);
  ofRoutes(view, add);
  ofHolds(view, add);
  ofBus(view, add);
  ofRoom(view, add);
  const order = Object.keys(LEVELS);
  return found.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
}

function ofState(view, add) {
  if (view.state === "starting") add("warn", "starting", "Starting: not every target has answered yet", "Requests wait until the app is there; /ready says 503.");
  if (view.state !== "draining" && view.state !== "stopped") return;
  const open = [];
  const running = view.lanes.reduce((n, l) => n + (l.counts.busy || 0), 0);
  const waiting = view.lanes.reduce((n, l) => n + l.waiting, 0);
  const held = Object.values(view.holds.open).reduce((n, k) => n + k, 0);
  if (running) open.push(`${counted(running, "request")} running`);
  if (waiting) open.push(`${count(waiting)} waiting`);
  if (held) open.push(counted(held, "hold"));
  const left = open.length ? `Still there: ${open.join(", ")}.` : "Nothing is left to finish.";
  add("note", "draining", view.drain ? `Draining for ${time(view.drain.ms)}, ${bound(view.drain.bound_ms)} at most` : "Draining", left);
}

function ofTargets(view, add) {
  const up = new Set(view.targets.filter((t) => t.up).map((t) => t.upstream));
  for (const t of view.targets) {
    if (t.up || (view.state === "starting" && !t.last_error)) continue;
    const level = up.has(t.upstream) ? "warn" : "bad";
    const alone = up.has(t.upstream) ? "Its slots are out; the upstream's other targets serve." : `No target of upstream ${t.upstream} is up: requests wait, then are refused. Holds stay.`;
    add(level, `target ${t.upstream} ${t.name}`, `Target ${t.name} is down${t.ms === null ? "" : ` for ${time(t.ms)}`}`, `${t.last_error ? `${targetError(t)}. ` : ""}${alone}`, places.get(`target ${t.upstream} ${t.name}`));
  }
}

function ofLane(view, lane, add) {
  const at = places.get(`lane ${lane.name}`);
  const busy = lane.counts.busy || 0, abandoned = lane.counts.abandoned || 0, free = lane.counts.free || 0;
  const refusals = Object.entries(lane.refused).filter(([reason, n]) => n.lately && reason !== "draining");
  if (refusals.length) {
    const n = refusals.reduce((sum, [, c]) => sum + c.lately, 0);
    add("bad", `refused ${lane.name}`, `Lane ${lane.name} refused ${counted(n, "request")} ${lately(view.lately_ms)}`,
      refusals.map(([reason, c]) => `${reason} ${count(c.lately)}: ${REASONS[reason] || ""}`).join(" "), at);
  }
  if (lane.slots && abandoned >= lane.slots) {
    add("bad", `lost ${lane.name}`, `Lane ${lane.name} is lost: all of its ${counted(lane.slots, "slot")} are abandoned`,
      `Their clients are gone and their views hang, the longest for ${time(lane.longest_ms.abandoned)}. A restart of the app frees them.`, at);
  } else if (abandoned) {
    add("warn", `abandoned ${lane.name}`, `Lane ${lane.name} has ${count(abandoned)} of ${counted(lane.slots, "slot")} abandoned`,
      `Clients left and their views still run, the longest for ${time(lane.longest_ms.abandoned)}.`, at);
  }
  if (lane.waiting && lane.parked) {
    add("warn", `waiting ${lane.name}`, `${counted(lane.waiting, "request")} of lane ${lane.name} ${lane.waiting === 1 ? "waits" : "wait"} for a target to be back`, oldest(lane), at);
  } else if (lane.waiting) {
    add("warn", `waiting ${lane.name}`, `Lane ${lane.name} is full: ${counted(lane.waiting, "request")} ${lane.waiting === 1 ? "waits" : "wait"} for ${lane.slots === 1 ? "its slot" : `${count(busy)} busy slots`}`,
      `${oldest(lane)}${busy ? ` The longest request runs for ${time(lane.longest_ms.busy)}.` : ""}`, at);
  } else if (lane.stream && busy && !free) {
    add("warn", `full ${lane.name}`, `Stream lane ${lane.name} has no free slot`, "The next client is refused.", at);
  }
}

const oldest = (lane) => `The oldest waits for ${time(lane.oldest_ms)}${lane.queue_timeout_ms ? ` of ${bound(lane.queue_timeout_ms)}` : ""}.`;

// A target's error without what is beside it anyway.
const targetError = (t) => t.last_error.replace(`target ${t.name} cannot be reached: `, "");

function ofRoutes(view, add) {
  const failing = view.routes.map((route) => {
    const ofLanes = OF_A_LANE.reduce((n, reason) => n + ((route.errors[reason] || {}).lately || 0), 0);
    return [route, (route.failed.lately || 0) - ofLanes];
  }).filter(([, n]) => n > 0);
  for (const [route, n] of failing) {
    const why = Object.entries(route.errors).filter(([reason, c]) => c.lately && !OF_A_LANE.includes(reason) && SERVERS.has(reason));
    add("warn", `route ${route.name}`, `${count(n)} of ${counted(route.requests.lately, "request")} failed on ${routeName(route)} ${lately(view.lately_ms)}`,
      why.map(([reason, c]) => `${reason} ${count(c.lately)}: ${REASONS[reason] || ""}`).join(" "), places.get(`route ${route.name}`));
  }
}

// The reasons that are no fault of a client's.
const SERVERS = new Set([...OF_A_LANE, "app", "upstream_error", "upstream_timeout", "bad_hold", "too_many_holds", "bus_down", "internal", "stream_refused"]);

const routeName = (route) => route.name || "(no route)";

function ofHolds(view, add) {
  const { ended, gaps_told: gaps, limit, open } = view.holds;
  for (const reason of ["slow", "stalled", "overload", "error", "bus_lost"]) {
    const n = (ended[reason] || {}).lately;
    if (n) add("warn", `ended ${reason}`, `${counted(n, "hold")} ended ${reason} ${lately(view.lately_ms)}`, ENDS[reason], "ends-title");
  }
  if (gaps.lately) add("warn", "gaps", `${counted(gaps.lately, "client")} ${gaps.lately === 1 ? "was" : "were"} told of missing events ${lately(view.lately_ms)}`, "They came back from before what the journal has.", "holds-title");
  const held = Object.values(open).reduce((n, k) => n + k, 0);
  if (limit && held >= limit * 0.9) add("warn", "limit", `${count(held)} of ${counted(limit, "hold")} that there may be`, REASONS.too_many_holds, "holds-title");
}

function ofBus(view, add) {
  if (view.bus && !view.bus.connected) add("bad", "bus", `The bus (${view.bus.kind}) cannot be reached`, "Nothing can be published: bus_down. Holds stay, and get what they missed when it is back.", "holds-title");
}

function ofRoom(view, add) {
  const b = view.bytes;
  if (b.no_room.lately) add("bad", "no room", `Neither memory nor spool had room, ${counted(b.no_room.lately, "time")} ${lately(view.lately_ms)}`, "Uploads wait, answers go at their clients' pace with their slots held.", "room-title");
  if (b.spool_limit && b.spool >= b.spool_limit * 0.8) add("warn", "spool", `The spool is ${Math.round((b.spool / b.spool_limit) * 100)}% full`, "", "room-title");
  if (b.memory_limit && b.memory >= b.memory_limit * 0.9) add("note", "memory", `Memory for bodies is ${Math.round((b.memory / b.memory_limit) * 100)}% full`, "The next bodies go to the spool.", "room-title");
}

function drawProblems(view) {
  const all = problems(view);
  const shown = all.slice(0, WRONG_MOST);
  if (all.length > shown.length) shown.push({ level: "note", key: "more", what: `and ${all.length - shown.length} more`, why: "See the sections below." });
  list($("problems"), shown, (p) => p.key, () => {
    const level = el("span", { class: "level" }), what = el("span", { class: "what" }), why = el("span", { class: "why" });
    return { node: el("li", null, level, what, why), level, what, why, link: null };
  }, (row, p) => {
    style(row.node, p.level);
    const [word, shape] = LEVELS[p.level];
    say(row.level, `${shape} ${word}`);
    if (p.at && !row.link) row.what.replaceChildren((row.link = el("a")));
    if (row.link) mark(row.link, "href", `#${p.at}`);
    say(row.link || row.what, p.what);
    say(row.why, p.why);
    show(row.why, p.why !== "");
  });
  const counting = all.filter((p) => p.level !== "note").length;
  show($("nothing"), counting === 0);
  if (!counting) calm(view);
  // For who listens to the page: only when something comes or goes, not each second.
  const keys = all.map((p) => p.key).join("\n");
  if ($("said").keys !== keys) {
    $("said").keys = keys;
    say($("said"), all.length ? `${counted(counting, "problem")}. ${all.map((p) => p.what).join(". ")}` : "Nothing is wrong.");
  }
  return all;
}

function calm(view) {
  const box = $("nothing");
  if (!box.firstChild) box.append(el("b", null, "✓ Nothing."), " ", el("span"));
  const up = view.targets.filter((t) => t.up).length;
  const full = view.lanes.filter((l) => l.slots && !l.counts.free).length;
  say(box.lastChild, `Nobody waits for a slot${full ? "" : ", every lane has a free one"}; ${up === view.targets.length ? (up === 1 ? "the target is up" : `all ${count(up)} targets are up`) : `${count(up)} of ${count(view.targets.length)} targets are up`}; nothing was refused ${lately(view.lately_ms)}.`);
}
