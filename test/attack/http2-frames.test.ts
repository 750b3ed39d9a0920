/**
 * One client sends each kind of frame as fast as it can. Node calls JavaScript for some of them, which takes as much time as a hundred bytes; such a
 * flood must end its session. What Node calls is counted by the asynchronous contexts that it enters.
 */
import { createHook } from 'node:async_hooks';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { startGate, type TestGate, until } from '../support/gate.ts';
import { FLAG, FRAME, type FrameClient, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';

const FLOOD_BYTES = 1_000_000;
/** Of one client, in one turn of the event loop: half of what arrives in it, 4 KiB each. */
const MAX_CALLS = 2_048;
/** As many streams as a client may reset at once. */
const RESETS = 200;
const BODY_BYTES = 1_000;
const PADDED = 8;
const OPEN_STREAM = 1;
const NO_ERROR = Buffer.alloc(8);
const CANCEL = Buffer.from([0, 0, 0, 8]);
const ONE = Buffer.from([0, 0, 0, 1]);
/** `GET`, `https`, `/` and `:authority: a` of the static table of HPACK. */
const SHORT_HEAD = Buffer.from([0x82, 0x87, 0x84, 0x01, 0x01, 0x61]);
/** Of the registry of frame types (RFC 9113 §11.2), and RFC 7838, 8336 and 9218. */
const TYPE = { priority: 2, pushPromise: 5, altsvc: 10, origin: 12, priorityUpdate: 16 } as const;

const app = useApp();
const authority = useAuthority();
const files = toTlsFiles(authority.issue('local', 'DNS:localhost,IP:127.0.0.1'));
let gate: TestGate;
let client: FrameClient;
/** Objects of Node's HTTP/2 by their asynchronous id. */
const contexts = new Map<number, string>();
/** In this turn of the event loop. */
let calls = 0;
/** In any turn of the test. */
let most = 0;
const hook = createHook({
  init: (id, type) => {
    if (type.startsWith('HTTP2')) contexts.set(id, type);
  },
  before: (id) => {
    if (!contexts.has(id)) return;
    if (calls === 0)
      setImmediate(() => {
        calls = 0;
      });
    most = Math.max(most, ++calls);
  },
});

beforeEach(async () => {
  contexts.clear();
  most = 0;
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
  const open = { name: 'open', match: { path: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  gate = await startGate({ routes: [open], listen: { address: '127.0.0.1:0', tls } }, undefined, files);
  hook.enable();
  client = await openFrames(gate.port, authority.ca);
});

afterEach(async () => {
  hook.disable();
  client.socket.destroy();
  await gate.stop();
});

/** An upload that does not end: a session stays open as long as it has one. */
async function openUpload(): Promise<void> {
  const block = toBlock([
    [':method', 'POST'],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', '/open'],
    ['content-length', String(BODY_BYTES)],
  ]);
  client.socket.write(toFrame(FRAME.headers, FLAG.endHeaders, OPEN_STREAM, block));
  await until(() => countStreams() === 1);
}

const countStreams = (): number => [...contexts.values()].filter((type) => type === 'HTTP2STREAM').length;

/** Resolves once the gate has read everything, with whether it ended the session. */
async function settle(): Promise<boolean> {
  let hasEnded = false;
  void client.closed.then(() => {
    hasEnded = true;
  });
  const before = client.frames.length;
  client.socket.write(toFrame(FRAME.settings, 0, 0));
  const isRead = (): boolean =>
    client.frames.slice(before).some(({ type, flags }) => type === FRAME.settings && flags === FLAG.ack);
  await until(() => hasEnded || isRead());
  return hasEnded;
}

async function flood(frame: Buffer): Promise<boolean> {
  client.socket.write(Buffer.concat(Array.from({ length: Math.ceil(FLOOD_BYTES / frame.length) }, () => frame)));
  return settle();
}

describe('in HTTP/2, a flood calls JavaScript seldom in each turn of the event loop, or ends its session:', () => {
  const kinds: Readonly<Record<string, Buffer>> = {
    'DATA frames of a byte': toFrame(FRAME.data, 0, OPEN_STREAM, Buffer.from('x')),
    'empty DATA frames': toFrame(FRAME.data, 0, OPEN_STREAM),
    'DATA frames with padding only': toFrame(FRAME.data, PADDED, OPEN_STREAM, Buffer.of(0)),
    'DATA frames that end the stream': toFrame(FRAME.data, FLAG.endStream, OPEN_STREAM),
    'HEADERS frames of an open stream': toFrame(FRAME.headers, FLAG.endHeaders, OPEN_STREAM, toBlock([['a', 'b']])),
    trailers: toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, OPEN_STREAM, toBlock([['a', 'b']])),
    'informational responses': toFrame(FRAME.headers, FLAG.endHeaders, OPEN_STREAM, toBlock([[':status', '103']])),
    'PRIORITY frames': toFrame(TYPE.priority, 0, OPEN_STREAM, Buffer.from([0, 0, 0, 0, 5])),
    'RST_STREAM frames': toFrame(FRAME.rstStream, 0, OPEN_STREAM, CANCEL),
    'SETTINGS frames': toFrame(FRAME.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0, 1])),
    'empty SETTINGS frames': toFrame(FRAME.settings, 0, 0),
    'acknowledgements of SETTINGS': toFrame(FRAME.settings, FLAG.ack, 0),
    'PUSH_PROMISE frames': toFrame(
      TYPE.pushPromise,
      FLAG.endHeaders,
      OPEN_STREAM,
      Buffer.concat([Buffer.of(0, 0, 0, 2), SHORT_HEAD]),
    ),
    'PING frames': toFrame(FRAME.ping, 0, 0, Buffer.alloc(8)),
    'acknowledgements of PING': toFrame(FRAME.ping, FLAG.ack, 0, Buffer.alloc(8)),
    'GOAWAY frames': toFrame(FRAME.goaway, 0, 0, NO_ERROR),
    'GOAWAY frames with an error': toFrame(FRAME.goaway, 0, 0, Buffer.from([0, 0, 0, 0, 0, 0, 0, 2])),
    'WINDOW_UPDATE frames': toFrame(FRAME.windowUpdate, 0, 0, ONE),
    'WINDOW_UPDATE frames of a stream': toFrame(FRAME.windowUpdate, 0, OPEN_STREAM, ONE),
    'CONTINUATION frames': toFrame(FRAME.continuation, 0, OPEN_STREAM, Buffer.of(0x82)),
    'ALTSVC frames': toFrame(TYPE.altsvc, 0, OPEN_STREAM, Buffer.from('\0\0h2=":443"')),
    'ALTSVC frames of an origin': toFrame(TYPE.altsvc, 0, 0, Buffer.from('\0\x01ah2=":443"')),
    'ORIGIN frames': toFrame(TYPE.origin, 0, 0, Buffer.from('\0\x01a')),
    'PRIORITY_UPDATE frames': toFrame(TYPE.priorityUpdate, 0, 0, Buffer.from('\0\0\0\x01u=1')),
    'frames of an unknown type': toFrame(0x77, 0xff, OPEN_STREAM, Buffer.alloc(8)),
  };

  test.each(Object.entries(kinds))('%s', { timeout: 60_000 }, async (_name, frame) => {
    await openUpload();
    const hasEnded = await flood(frame);
    expect(hasEnded || most <= MAX_CALLS, `${most} calls in a turn`).toBe(true);
  });
});

test.each([
  ['that are reset', toFrame(FRAME.rstStream, 0, 0, CANCEL)],
  ['that are not reset', Buffer.alloc(0)],
])(
  'streams that a client opens after its GOAWAY, %s, are refused without JavaScript',
  { timeout: 60_000 },
  async (_name, reset) => {
    await openUpload();
    const streams = Array.from({ length: RESETS }, (_, index) => {
      const id = OPEN_STREAM + 2 + 2 * index;
      const after = Buffer.from(reset);
      if (after.length > 0) after.writeUInt32BE(id, 5);
      return Buffer.concat([toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, id, SHORT_HEAD), after]);
    });
    client.socket.write(Buffer.concat([toFrame(FRAME.goaway, 0, 0, NO_ERROR), ...streams]));
    await settle();
    expect(countStreams()).toBe(1);
  },
);

test('a client that sends GOAWAY gets the responses to its requests', async () => {
  await openUpload();
  client.socket.write(toFrame(FRAME.goaway, 0, 0, NO_ERROR));
  await client.next(({ type }) => type === FRAME.goaway);
  client.socket.write(toFrame(FRAME.data, FLAG.endStream, OPEN_STREAM, Buffer.alloc(BODY_BYTES)));
  await client.next(({ type, stream, flags }) => stream === OPEN_STREAM && type <= FRAME.headers && (flags & FLAG.endStream) > 0);
  expect(app.received.map(({ body }) => body.length)).toEqual([BODY_BYTES]);
  await client.closed;
});
