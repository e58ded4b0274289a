// The feed: an event stream that is read with fetch(), because an EventSource
// cannot bring a key.

const QUIET = 3000; // after so long without a word what is shown is old
const DEAD = 6000; // and after so long the connection is given up
const KEY = "holdfast-admin-key";

const feed = { view: null, page: null, heard: performance.now(), connected: false, paused: false, ended: false, why: "", stop: null, key: stored() };

function stored() {
  try { return sessionStorage.getItem(KEY) || ""; } catch { return ""; }
}
function keep(key) {
  feed.key = key;
  try { key ? sessionStorage.setItem(KEY, key) : sessionStorage.removeItem(KEY); } catch { /* it is kept for as long as the page is there */ }
  show($("forget"), key !== "");
}

// follow reads the feed for as long as the page is there.
async function follow() {
  for (let tries = 0; ; tries++) {
    const before = feed.heard;
    let keyed = false;
    try { keyed = await read(); } catch { /* it was refused or cut: there is no more to say of it */ }
    feed.connected = false;
    look();
    if (keyed || feed.heard !== before) tries = 0;
    if (keyed) continue;
    await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** tries, 4000) * (0.75 + Math.random() / 2)));
  }
}

// read is one connection's life; true: there is another key to try.
async function read() {
  feed.stop = new AbortController();
  feed.why = "";
  const began = performance.now();
  const patience = setTimeout(() => feed.stop.abort(), DEAD); // for the answer's head
  let answer;
  try {
    answer = await fetch("feed", { cache: "no-store", credentials: "omit", signal: feed.stop.signal, headers: { Accept: "text/event-stream, application/problem+json", ...(feed.key && { Authorization: `Bearer ${feed.key}` }) } });
  } finally { clearTimeout(patience); }
  if (answer.status === 401) return askForKey((await answer.json()).detail);
  if (!answer.ok) {
    const problem = await answer.json().catch(() => ({}));
    feed.why = problem.reason === "too_many_holds" ? "As many watch this dashboard as may." : problem.detail || `It answered ${answer.status}.`;
    return false;
  }
  feed.heard = Math.max(feed.heard, began);
  feed.connected = true;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) take(JSON.parse(line.slice(6)));
  }
  feed.ended = Boolean(feed.view) && feed.view.state !== "ready" && feed.view.state !== "starting";
  return false;
}

function take(view) {
  feed.view = view;
  feed.heard = performance.now();
  feed.ended = false;
  feed.page ??= view.page;
  show($("other"), view.page !== feed.page);
  render();
  look();
}

function render() {
  if (!feed.view || feed.paused) return;
  const wrong = document.hidden ? problems(feed.view) : draw(feed.view);
  const bad = wrong.filter((p) => p.level !== "note").length;
  const title = `${bad ? `(${bad}) ` : ""}${feed.view.instance || "Holdfast"} · Holdfast`;
  if (document.title !== title) document.title = title;
  icon(bad ? wrong[0].level : feed.view.state === "ready" ? "good" : "note");
}

// The tab's icon: its shape says how it is, for who has the page in the background.
function icon(level) {
  const [colour, shape] = { good: ["#1a6b3d", "M9 16l5 5 9-10"], note: ["#5a616b", "M10 16h12"], warn: ["#a86a00", "M16 8v10M16 22v2"], bad: ["#ad211a", "M10 10l12 12M22 10L10 22"], lost: ["#8b949e", "M10 16h12"] }[level];
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="${colour}"/><path d="${shape}" fill="none" stroke="#fff" stroke-width="4" stroke-linecap="round"/></svg>`;
  mark($("icon"), "href", `data:image/svg+xml,${encodeURIComponent(svg)}`);
}

// look says how the feed itself is.
function look() {
  const quiet = performance.now() - feed.heard;
  const asks = !$("key").hidden;
  const lost = !asks && Boolean(feed.view) && (quiet > QUIET || (!feed.connected && feed.ended));
  if (quiet > DEAD && feed.connected) feed.stop.abort();
  document.body.classList.toggle("stale", lost);
  const silent = !asks && (lost || (!feed.view && quiet > QUIET));
  show($("lost"), silent);
  style($("lost"), feed.ended ? "lost ended" : "lost");
  say($("lost-text"), feed.ended ? "Holdfast has drained and stopped. What is below is what it said last." : feed.why ? `No word from Holdfast: ${feed.why} Trying again.` : "No word from Holdfast. What is below is what it said last; trying again.");
  say($("lost-for"), ` No word for ${Math.floor(quiet / 1000)} s.`);
  if (lost) icon("lost");
  const is = asks ? "key" : silent ? "lost" : feed.paused ? "paused" : feed.view ? "live" : "connecting";
  mark($("live"), "data-is", is);
  say($("live-text"), { key: "Needs a key", lost: "Lost", paused: "Paused", live: "Live", connecting: "Connecting" }[is]);
  show($("pause"), Boolean(feed.view));
}

// askForKey waits until a key is given.
function askForKey(why) {
  const wrong = feed.key !== "";
  keep("");
  say($("key-why"), why || "");
  show($("key"), true);
  show($("key-wrong"), wrong);
  look();
  $("key-text").focus();
  return new Promise((resolve) => {
    $("key").onsubmit = (event) => {
      event.preventDefault();
      keep($("key-text").value.trim());
      $("key-text").value = "";
      show($("key"), false);
      feed.heard = performance.now();
      resolve(true);
    };
  });
}

$("pause").onclick = () => {
  feed.paused = !feed.paused;
  mark($("pause"), "aria-pressed", String(feed.paused));
  render();
  look();
};
$("forget").onclick = () => {
  keep("");
  feed.stop.abort();
};
document.addEventListener("visibilitychange", render);
setInterval(look, 500);
show($("forget"), feed.key !== "");
drawLegend();
drawWords();
icon("note");
follow();
