const $ = (id) => document.getElementById(id);
const clock = () => new Date().toLocaleTimeString([], { hourCycle: "h23" });

// Both streams go on from where the events stood as this page was made. After
// that each knows by itself how far it is.
const position = document.body.dataset.position;
const from = (id) => (id ? `?lastEventId=${id}` : "");

const KEPT = 200; // lines of a panel

function panel(name) {
  const section = $(name), list = section.querySelector("ol");
  const word = section.querySelector(".state b"), more = section.querySelector(".state span");
  let detail = "", since = "";
  function show() {
    const gaps = Number(section.dataset.gaps);
    const told = gaps ? `, told of ${gaps === 1 ? "a gap" : `${gaps} gaps`}` : "";
    word.textContent = section.dataset.state;
    more.textContent = ` since ${since}${detail && `, ${detail}`}${told}`;
  }
  function add(kind, text, id) {
    const atEnd = list.scrollTop + list.clientHeight > list.scrollHeight - 30;
    const line = document.createElement("li"), time = document.createElement("time");
    const said = document.createElement("span"), number = document.createElement("code");
    line.className = kind;
    time.textContent = clock();
    said.textContent = text;
    line.append(time, said);
    if (id) {
      number.textContent = `…${String(id).slice(-8)}`;
      number.title = `event ${id}`;
      line.append(number);
    }
    list.append(line);
    if (list.childElementCount > KEPT) list.firstElementChild.remove();
    if (atEnd) list.scrollTop = list.scrollHeight;
  }
  return {
    add,
    is(state, text = "") {
      if (state === section.dataset.state) return; // the next try that fails says nothing new
      section.dataset.state = state;
      since = clock();
      detail = text;
      show();
    },
    gap(told) {
      section.dataset.gaps = Number(section.dataset.gaps) + 1;
      section.dataset.head = told.head;
      add("gap", "A gap: events may be missing here. A page of yours would now ask for its state again.");
      show();
    },
  };
}

const asText = (data) => (typeof data === "string" ? data : JSON.stringify(data));

// An EventSource comes back by itself, and says how far it was. It gives up
// only on an answer that is no event stream.
function followFeed() {
  const feed = panel("feed");
  let last = position;
  function open() {
    const source = new EventSource(`/live/feed${from(last)}`);
    source.onopen = () => feed.is("connected");
    source.onmessage = (event) => {
      last = event.lastEventId;
      feed.add("event", event.data, last);
    };
    source.addEventListener("m0-gap", (event) => feed.gap(JSON.parse(event.data)));
    source.onerror = () => {
      feed.is("reconnecting");
      if (source.readyState === EventSource.CLOSED) setTimeout(open, 3000);
    };
  }
  open();
}

// A WebSocket does not: that is the page's own to do. In the envelope each
// event has its id, with which it goes on.
function followChat() {
  const chat = panel("chat");
  let last = position, tries = 0, socket;
  function hear({ data }) {
    const event = JSON.parse(data);
    if (event.id) last = event.id;
    switch (event.event) {
      case "m0-open": break;
      case "m0-gap": chat.gap(event.data); break;
      case "reply": chat.add("reply", event.data); break;
      case "chat": chat.add("event", `${event.data.from}: ${event.data.text}`, event.id); break;
      default: chat.add("event", "base64" in event ? `${event.base64} (binary)` : asText(event.data), event.id);
    }
  }
  function open() {
    socket = new WebSocket(`${location.origin.replace(/^http/, "ws")}/live/socket${from(last)}`);
    socket.onopen = () => {
      tries = 0;
      chat.is("connected");
    };
    socket.onmessage = hear;
    socket.onclose = ({ code, reason }) => {
      chat.is("reconnecting", `code ${code}${reason && ` ${reason}`}`);
      // Not all pages at the same time, and less and less often.
      setTimeout(open, Math.min(5000, 500 * 2 ** tries++) * (0.5 + Math.random() / 2));
    };
  }
  $("say").addEventListener("submit", (submit) => {
    submit.preventDefault();
    if (socket.readyState !== WebSocket.OPEN) {
      chat.add("reply", "Not connected: what you wrote is still there.");
      return;
    }
    socket.send($("say-text").value);
    $("say-text").value = "";
  });
  open();
}

// The cookie's, not one rendered into the page: tabs share the cookie, and two
// that are opened at the same time are each given a new one.
const token = () => document.cookie.match(/(?:^|; )csrftoken=([^;]*)/)?.[1] || "";

$("publish").addEventListener("submit", async (submit) => {
  submit.preventDefault();
  const form = submit.target, body = new FormData(form);
  try {
    const answer = await fetch("/demo/publish", { method: "POST", headers: { "X-CSRFToken": token() }, body });
    const said = await answer.json().catch(() => ({}));
    $("published").textContent = answer.ok ? `Published as event ${said.id}.`
      : `Not published: ${said.error || said.detail || `answered ${answer.status}`}.`;
    if (answer.ok) form.reset();
  } catch (err) {
    $("published").textContent = "Not published: no answer.";
  }
});

const size = (bytes) => (bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

$("upload").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const say = (text) => { $("uploaded").textContent = text; };
  const sending = new XMLHttpRequest(), began = performance.now(); // fetch does not tell how far it is
  $("sent").value = 0;
  $("sent").hidden = false;
  sending.upload.onprogress = ({ loaded, total }) => {
    $("sent").value = loaded / total;
    say(`${size(loaded)} of ${size(total)} sent`);
  };
  sending.onload = () => {
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    try {
      const said = JSON.parse(sending.responseText);
      say(sending.status === 201 ? `${said.name}: the app got ${size(said.bytes)} after ${seconds} s, SHA-256 ${said.sha256.slice(0, 16)}…`
        : `Refused with ${sending.status}: ${said.detail || JSON.stringify(said.errors)}`);
    } catch (err) {
      say(`Refused with ${sending.status}.`);
    }
  };
  sending.onerror = () => say("Not uploaded: no answer.");
  sending.open("POST", "/files/");
  sending.setRequestHeader("X-CSRFToken", token());
  sending.send(new FormData(submit.target));
});

followFeed();
followChat();
