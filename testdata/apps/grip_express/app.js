// Streams, long polls and WebSockets that a GRIP proxy holds, as an Express app
// answers with them that uses the libraries of GRIP's makers and nothing else.
//
//   GRIP_URL='http://127.0.0.1:5561?iss=holdfast&key=secret' node app.js PORT
//
// LEDGER names a file that gets a line at the start and at the end of each
// request, in the form of ledger.py.

import fs from 'node:fs';
import express from 'express';
import { HttpResponseFormat, HttpStreamFormat, Publisher, WebSocketMessageFormat, parseGripUri } from '@fanoutio/grip';
import { ServeGrip } from '@fanoutio/serve-grip';

const serveGrip = new ServeGrip({ grip: process.env.GRIP_URL });

const { control_uri, control_iss, key } = parseGripUri(process.env.GRIP_URL);

// Who publishes: the library as GRIP_URL has it set up, or in another way.
const publishers = {
  configured: serveGrip.getPublisher(),
  'key as bearer': new Publisher({ control_uri, key }),
  'wrong key': new Publisher({ control_uri, control_iss, key: 'no-' + key }),
  'wrong bearer': new Publisher({ control_uri, key: 'no-' + key }),
  'other issuer': new Publisher({ control_uri, control_iss: 'no-' + control_iss, key }),
  'no key': new Publisher({ control_uri }),
};

const ledger = process.env.LEDGER && fs.openSync(process.env.LEDGER, 'a');

function note(request, ev, id) {
  if (ledger) {
    const line = { ev, id, method: request.method, path: request.originalUrl, pid: process.pid, thread: 0, t: Number(process.hrtime.bigint()) };
    fs.writeSync(ledger, JSON.stringify(line) + '\n');
  }
}

let requests = 0;
const app = express();

app.use((request, response, next) => {
  const id = request.get('X-Ledger-Id') ?? `${process.pid}-${++requests}`;
  note(request, 'start', id);
  response.on('finish', () => note(request, 'end', id));
  next();
});
app.use(serveGrip);

// What the app sees of a request. serve-grip 2.0.0 does not wait for the check
// of the signature: isSigned is true whatever it is. The library's own check
// is asked as well.
app.get('/', async (request, response) => {
  const { isProxied, isSigned } = request.grip;
  const verified = (await publishers.configured.validateGripSig(request.get('Grip-Sig'))).isSigned;
  response.json({ isProxied, isSigned, verified, headers: request.rawHeaders });
});

app.get('/stream', (request, response) => {
  const instruct = response.grip.startInstruct();
  instruct.addChannel(request.query.channel);
  instruct.setHoldStream();
  response.set('Content-Type', 'text/event-stream');
  response.end('event: open\ndata:\n\n');
});

app.get('/poll', (request, response) => {
  const instruct = response.grip.startInstruct();
  instruct.addChannel(request.query.channel);
  instruct.setHoldLongPoll(Number(request.query.timeout));
  response.type('text/plain').send('nothing new\n');
});

// The body is published to all kinds of holds at once; the answer is what the
// publish address answered.
app.post('/publish/:channel', express.raw({ type: '*/*', limit: '2mb' }), async (request, response) => {
  const { as = 'configured', binary, close, id } = request.query;
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  const content = binary ? new Uint8Array(body) : body.toString();
  const formats = close
    ? [new HttpStreamFormat(null, true), new WebSocketMessageFormat(null, true, Number(close))]
    : [
        new HttpStreamFormat(content),
        new HttpResponseFormat({ code: 201, reason: 'Published', headers: { 'Content-Type': 'text/x-news', 'X-Item': 'yes' }, body: content }),
        new WebSocketMessageFormat(content),
      ];
  try {
    await publishers[as].publishFormats(request.params.channel, formats, id);
    response.json({ published: 200 });
  } catch (error) {
    response.json({ published: error.context?.statusCode ?? 0, text: String(error) });
  }
});

// How sockets have ended, by their URL: a code, null where none was said, or
// "disconnect".
const ends = {};

function ended(request, how) {
  (ends[request.originalUrl] ??= []).push(how);
}

app.get('/ends', (request, response) => response.json(ends));

// socket answers the WebSocket-over-HTTP requests of a path: opened is called
// for a new socket, heard for each message, a string or bytes.
function socket(path, opened, heard) {
  app.post(path, async (request, response) => {
    const ws = request.grip.wsContext;
    if (!ws) {
      response.status(400).send('this is for sockets\n');
      return;
    }
    if (ws.isOpening()) {
      ws.accept();
      opened(ws, request);
    }
    while (ws.canRecv()) {
      let message;
      try {
        message = ws.recvRaw();
      } catch {
        ended(request, 'disconnect');
        break;
      }
      if (message === null) {
        ended(request, ws.closeCode);
        ws.close(ws.closeCode ?? 0);
        break;
      }
      await heard(ws, message, request);
    }
    response.end();
  });
}

const nothing = () => {};

function echo(ws, message) {
  if (typeof message === 'string') {
    ws.send(message);
  } else {
    ws.sendBinary(message);
  }
}

socket('/ws-echo', nothing, echo);

// All that is said in a room is published to everybody in it.
socket(
  '/ws-room',
  (ws, request) => ws.subscribe(request.query.channel),
  (ws, message, request) => publishers.configured.publishFormats(request.query.channel, new WebSocketMessageFormat(message)),
);

// What a socket can ask its app to do, in words.
const verbs = {
  close: (ws, code) => ws.close(Number(code ?? 0)),
  disconnect: (ws) => ws.disconnect(),
  detach: (ws) => ws.detach(),
  subscribe: (ws, channel) => ws.subscribe(channel),
  unsubscribe: (ws, channel) => ws.unsubscribe(channel),
  remember: (ws, name, value) => (ws.meta[name] = value),
  forget: (ws, name) => delete ws.meta[name],
  meta: (ws) => ws.send(JSON.stringify(ws.meta)),
  headers: (ws, _, __, request) => ws.send(JSON.stringify(request.rawHeaders)),
  id: (ws) => ws.send(ws.id),
};

socket('/ws-ask', nothing, (ws, message, request) => {
  const [verb, one, two] = String(message).split(' ');
  verbs[verb](ws, one, two, request);
  ws.send('done: ' + message);
});

app.post('/ws-reject', (request, response) => {
  response.status(401).set('WWW-Authenticate', 'Cookie').type('text/plain').send('who are you?\n');
});

app.listen(Number(process.argv[2]), '127.0.0.1');
