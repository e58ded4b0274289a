// What the words of Holdfast mean, and how numbers are written.

const REASONS = {
  lane_full: "The lane's queue has no place: every slot is taken and as many wait as may. More slots if the app runs as many at once, or slow routes on a lane of their own.",
  lane_timeout: "No slot came free within queue_timeout. The views are slower than the requests come.",
  upstream_down: "No target of the lane has been up for longer than park. Start the app.",
  draining: "Holdfast is stopping and took no more of this work.",
  upstream_error: "The app closed the connection, or its answer could not be used. The log has the cause.",
  upstream_timeout: "The app did not answer within response_timeout.",
  bad_hold: "A view's answer asked for a hold in a way that cannot be followed. The log says why.",
  too_many_holds: "As many clients are held as may be: holds.limit, or the limit of open files.",
  bus_down: "The bus that carries events between several Holdfasts cannot be reached.",
  internal: "A fault in Holdfast itself, or out of descriptors. The log names the cause.",
  stream_refused: "A view answered with an endless stream on a request lane. Use a hold, or a lane of kind: stream.",
  bad_request: "The request could not be read in one way only, or something in it is wrong.",
  unauthorized: "The key that is needed was not given.",
  grant_invalid: "A grant that is malformed, not signed with a known key, or of another session.",
  grant_expired: "A grant whose time is over.",
  origin_denied: "A page of another origin wanted to open a hold.",
  forbidden: "A request that only Holdfast itself may make.",
  no_route: "No route takes the path.",
  method_not_allowed: "The path has routes, but none for the method.",
  body_timeout: "The client sent no byte of its body for body_timeout.",
  body_too_large: "The body is larger than body_bytes.",
  uri_too_long: "The request's target is too long.",
  headers_too_large: "The request's head is larger than header_bytes.",
  expectation_failed: "The request expects what is not known here.",
  misdirected: "The request is for another host.",
  range_not_satisfiable: "The file has no such part.",
  upgrade_required: "The view approves WebSockets, and this was no such request.",
  not_implemented: "A method or coding that Holdfast does not do.",
  version_not_supported: "Another version of HTTP.",
  app: "The app itself answered 500 or above.",
};

const ENDS = {
  client: "The client left.",
  slow: "It was further behind than outbox_bytes.",
  stalled: "It took no byte for write_stall.",
  protocol: "It broke the WebSocket protocol.",
  too_big: "It sent a message over message_bytes.",
  published: "It was ended through the publish API.",
  expired: "It was as old as max_age, or its long poll's time was over.",
  draining: "Holdfast is stopping; its client comes back.",
  overload: "It kept too much memory, or its messages could not be delivered.",
  bus_lost: "Events of other nodes may have been missed.",
  error: "A fault in Holdfast itself.",
};

const SLOTS = { f: "free", b: "busy", a: "abandoned", d: "down" };
const SLOT_WORDS = {
  free: "Nobody uses it.",
  busy: "A request of it is at the app.",
  abandoned: "Its client is gone and its view still runs: the slot comes back when the view ends.",
  down: "Its target cannot be reached.",
};
const STATES = { starting: "Starting", ready: "Ready", draining: "Draining", stopped: "Stopped" };
const KINDS = { stream: "Streams", websocket: "WebSockets", response: "Long polls" };

const whole = new Intl.NumberFormat("en");
const small = new Intl.NumberFormat("en", { maximumFractionDigits: 1, minimumFractionDigits: 1 });

const count = (n) => whole.format(n);
const counted = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// A rate: one digit behind the point while that says something; – is not known yet.
const rate = (n) => (n === null ? "–" : n > 0 && n < 0.05 ? "<0.1" : n < 100 && n > 0 ? small.format(n) : count(Math.round(n)));

// A time in milliseconds, in the unit that one would say it in.
function time(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10) return `${small.format(ms)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 100e3) return `${small.format(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60e3);
  if (minutes < 100) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

// A time that is a bound, as the configuration has it.
const bound = (ms) => time(ms).replace(".0 ", " ");

// Bytes, in the units of the configuration.
function bytes(n) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024 || unit === "GiB") return unit === "B" ? `${n} B` : `${n < 100 ? small.format(n).replace(/\.0$/, "") : Math.round(n)} ${unit}`;
    n /= 1024;
  }
}

const lately = (ms) => (ms >= 55e3 ? "in the last minute" : `in the last ${Math.max(1, Math.round(ms / 1000))} s`);
