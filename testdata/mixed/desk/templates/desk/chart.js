const SHOWN = 30_000, PAUSE = 100, SLOW = 1500;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// A browser opens six connections to one host. The slow requests would take
// them all, and the fast one would wait in the browser. So they go to this
// machine's other name; without one there are fewer of them.
const otherName = { "127.0.0.1": "localhost", localhost: "127.0.0.1" }[location.hostname];
const other = otherName ? `${location.protocol}//${otherName}:${location.port}` : "";
const LOOPS = other ? 6 : 2;

let fast = [], slow = []; // {sent, t, ms}: answers; ms is null where there was none
let loads = [];           // {from, to}: when slow views were asked for
let since = 0;            // p50 and max count from here
let asked = 0;            // when the fast request under way was sent, or 0
let stop;                 // of the slow views, an AbortController
let flight = 0, finished = 0, failed = 0;

async function pollFast() {
  for (;;) {
    const sent = asked = performance.now();
    let ok = false;
    try {
      const answer = await fetch("/api/tickets/7", { cache: "no-store" });
      await answer.text();
      ok = answer.ok;
      trouble(ok ? "" : `The fast view was answered ${answer.status} (${answer.headers.get("Holdfast-Reason") || "no reason given"}).`);
    } catch (err) {
      trouble("The fast view got no answer.");
    }
    const now = performance.now();
    asked = 0;
    fast.push({ sent, t: now, ms: ok ? now - sent : null });
    show();
    await sleep(PAUSE - (performance.now() - sent) % PAUSE);
  }
}

async function loopSlow(n, signal) {
  while (!signal.aborted) {
    const sent = performance.now();
    let ok = false;
    flight++; show();
    try {
      // What came from another name cannot be read. An answer that took less
      // than the view does is not the view's.
      const answer = await fetch(`${other}/reports/slow?ms=${SLOW}&loop=${n}`, { mode: other ? "no-cors" : "same-origin", cache: "no-store", signal });
      if (!other) await answer.text();
      ok = performance.now() - sent >= SLOW;
    } catch (err) { /* the button, or no answer: neither is the view's */ }
    flight--;
    if (signal.aborted) break;
    const now = performance.now();
    slow.push({ sent, t: now, ms: ok ? now - sent : null });
    if (ok) finished++; else failed++;
    show();
    if (!ok) await sleep(1000);
  }
  show();
}

$("start").addEventListener("click", () => {
  const now = since = performance.now();
  if (stop) {
    stop.abort();
    stop = undefined;
    loads.at(-1).to = now;
  } else {
    stop = new AbortController();
    loads.push({ from: now, to: Infinity });
    for (let n = 0; n < LOOPS; n++) loopSlow(n, stop.signal);
  }
  $("start").textContent = stop ? "Stop the slow views" : `Start ${LOOPS} slow views`;
  $("start").setAttribute("aria-pressed", Boolean(stop));
  show();
});

function trouble(text) {
  if ($("trouble").textContent !== text) $("trouble").textContent = text;
}

function show() {
  const old = performance.now() - SHOWN;
  fast = fast.filter((p) => p.t > old - 1000);
  slow = slow.filter((p) => p.t > old - 1000);
  loads = loads.filter((l) => l.to > old);
  // One request at a time would be asked least often when it is slowest. So a
  // slow one stands for each that was due while it waited, as it would have waited.
  const ms = [];
  for (const p of fast) {
    if (p.sent < since || p.ms === null) continue;
    ms.push(p.ms);
    for (let due = p.ms - PAUSE; due > 0; due -= PAUSE) ms.push(due);
  }
  ms.sort((a, b) => a - b);
  const newest = fast.at(-1);
  duration($("last"), newest && newest.sent >= since ? newest.ms : null);
  duration($("p50"), ms.length ? ms[(ms.length - 1) >> 1] : null);
  duration($("max"), ms.length ? ms.at(-1) : null);
  $("flight").textContent = flight;
  $("finished").textContent = finished;
  if (failed) {
    const small = document.createElement("small");
    small.textContent = `${failed} failed`;
    $("finished").append(small);
  }
}

function duration(dd, ms) {
  if (ms === null) { dd.textContent = "–"; return; }
  const unit = document.createElement("small"), seconds = ms >= 999.5;
  unit.textContent = seconds ? "s" : "ms";
  dd.replaceChildren(seconds ? (ms / 1000).toFixed(2) : ms < 9.95 ? ms.toFixed(1) : ms.toFixed(0), unit);
}

// The scale is logarithmic and fixed, so that 3 ms and 5 s can both be read
// and nothing jumps when slow views start.
const chart = $("chart"), pen = chart.getContext("2d");
const LOW = 1, HIGH = 10_000;

function draw() {
  const w = chart.clientWidth, h = chart.clientHeight, dpr = devicePixelRatio || 1;
  if (chart.width !== Math.round(w * dpr) || chart.height !== Math.round(h * dpr)) {
    chart.width = Math.round(w * dpr);
    chart.height = Math.round(h * dpr);
  }
  pen.setTransform(dpr, 0, 0, dpr, 0, 0);
  pen.clearRect(0, 0, w, h);
  const css = getComputedStyle(document.documentElement), color = (name) => css.getPropertyValue(name).trim();
  const left = 54, right = w - 12, top = 8, bottom = h - 24, now = performance.now();
  const x = (t) => right - (now - t) / SHOWN * (right - left);
  const y = (ms) => bottom - Math.log(Math.min(HIGH, Math.max(LOW, ms)) / LOW) / Math.log(HIGH / LOW) * (bottom - top);

  pen.fillStyle = color("--load");
  for (const l of loads) {
    const start = Math.max(left, x(l.from)), end = Math.min(right, x(Math.min(l.to, now)));
    if (end > start) pen.fillRect(start, top, end - start, bottom - top);
  }
  axes({ left, right, h, x, y, now, grid: color("--grid"), soft: color("--soft") });

  pen.save();
  pen.beginPath(); pen.rect(left, 0, right - left + 6, h); pen.clip();
  pen.lineWidth = 1.5; pen.lineJoin = "round";
  pen.fillStyle = color("--slow"); pen.strokeStyle = color("--bad");
  for (const p of slow) {
    if (p.ms === null) cross(x(p.t), top + 6); else pen.fillRect(x(p.t) - 3, y(p.ms) - 3, 6, 6);
  }
  let before = null;
  pen.fillStyle = color("--fast");
  for (const p of fast) {
    if (p.ms === null) {
      pen.strokeStyle = color("--bad"); cross(x(p.t), top + 6);
    } else {
      if (before && before.ms !== null) {
        pen.strokeStyle = color("--fast"); pen.globalAlpha = .55;
        line(x(before.t), y(before.ms), x(p.t), y(p.ms));
        pen.globalAlpha = 1;
      }
      pen.beginPath(); pen.arc(x(p.t), y(p.ms), 2.5, 0, 7); pen.fill();
    }
    before = p;
  }
  // The request that still waits for its answer climbs as it waits.
  if (asked && now - asked > PAUSE) {
    pen.strokeStyle = color("--fast"); pen.fillStyle = color("--card");
    pen.beginPath(); pen.arc(right, y(now - asked), 4.5, 0, 7); pen.fill(); pen.stroke();
  }
  pen.restore();
}

function axes({ left, right, h, x, y, now, grid, soft }) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  pen.lineWidth = 1; pen.strokeStyle = grid; pen.fillStyle = soft;
  pen.textAlign = "right"; pen.textBaseline = "middle";
  for (const [ms, label] of [[1, "1 ms"], [10, "10 ms"], [100, "100 ms"], [1000, "1 s"], [10_000, "10 s"]]) {
    const at = Math.round(y(ms)) + .5;
    line(left, at, right, at);
    pen.fillText(label, left - 6, at);
  }
  pen.textBaseline = "alphabetic";
  for (const [ago, label, align] of [[SHOWN, "30 s ago", "left"], [15_000, "15 s", "center"], [0, "now", "right"]]) {
    pen.textAlign = align;
    pen.fillText(label, x(now - ago), h - 6);
  }
}

function line(x1, y1, x2, y2) { pen.beginPath(); pen.moveTo(x1, y1); pen.lineTo(x2, y2); pen.stroke(); }
function cross(x, y) { line(x - 4, y - 4, x + 4, y + 4); line(x - 4, y + 4, x + 4, y - 4); }

let drawn = 0;
function frame(t) {
  if (t - drawn > 40) { drawn = t; draw(); }
  requestAnimationFrame(frame);
}

$("start").textContent = `Start ${LOOPS} slow views`;
show();
pollFast();
requestAnimationFrame(frame);
