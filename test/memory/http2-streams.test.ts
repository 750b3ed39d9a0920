/**
 * Streams of HTTP/2 whose client takes no response, not even of a rejected request: how many there are is limited, and nothing is kept of their
 * bodies. Sessions without streams: while memory is tight, new connections replace them, and what all of them send in one turn of the event loop is limited.
 */
import { connect, type TLSSocket } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { makeAuthority, toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { toRoute } from '../support/gate.ts';
import { FLAG, FRAME, toBlock, toFrame } from '../support/h2-frames.ts';
import { sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';

/** The smallest container, in MiB. */
const SMALLEST = 96;
const MEDIUM = 128;
const LARGER = 192;
/** Further ones reset the stream. */
const MOST_FIELDS = 190;
const ADDRESSES = ['127.0.0.3', '127.0.0.4'];
/** As many as one port has. */
const CONNECTIONS = 1_024;
/** Opened at once. */
const BATCH = 16;
const STREAMS = 100;
/** One client's connections without a request, and the requests that it resets on each. The gate's limit on concurrent ones binds only a client that acknowledges it. */
const IDLE = 512;
const RESETS = 200;
/** `GET`, `https`, `/` and `:authority: a` of the static table of HPACK. */
const SHORT_HEAD = Buffer.from([0x82, 0x87, 0x84, 0x01, 0x01, 0x61]);
/** With a user name in `:authority`. */
const INVALID_HEAD = Buffer.concat([Buffer.from([0x82, 0x87, 0x84, 0x01, 3]), Buffer.from('a@b')]);
/** nghttp2 ends a session after 10,000. */
const INVALID_HEADS = 9_900;
const CANCEL = Buffer.from([0, 0, 0, 8]);
/** `accept-encoding: gzip, deflate` in a byte each. */
const LONG_HEAD = Buffer.concat([SHORT_HEAD, Buffer.alloc(MOST_FIELDS, 0x90)]);
const PINGS = 3_000;
const PIECE = Buffer.alloc(16_383, 'x');
const PIECES = 4;
/** No body of a response may be sent. */
const NO_WINDOW = Buffer.from([0, 4, 0, 0, 0, 0]);
const FIRST = Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), toFrame(FRAME.settings, 0, 0, NO_WINDOW)]);
const app = useApp();
const folder = useFolder();
let gate: CgroupGate | undefined;
const sockets = new Set<TLSSocket>();

afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  await gate?.stop();
});

function toStream(index: number, method: string, fields = 0): Buffer {
  const id = 2 * index + 1;
  const hasBody = method === 'POST';
  const block = toBlock([
    [':method', method],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', '/nope'],
    ...Array.from({ length: fields }, (_, i) => [`x-field-${i}`, 'value'] as const),
  ]);
  const head = toFrame(FRAME.headers, FLAG.endHeaders + (hasBody ? 0 : FLAG.endStream), id, block);
  return Buffer.concat([head, ...Array.from({ length: hasBody ? PIECES : 0 }, () => toFrame(FRAME.data, 0, id, PIECE))]);
}

/** The client cancels the request at once (CVE-2023-44487). */
function toResetStream(index: number, block = SHORT_HEAD): Buffer {
  const id = 2 * index + 1;
  const head = toFrame(FRAME.headers, FLAG.endHeaders + FLAG.endStream, id, block);
  return Buffer.concat([head, toFrame(FRAME.rstStream, 0, id, CANCEL)]);
}

/** Resolves once all streams of a connection are sent, or the gate has closed it. */
function hold(
  port: number,
  streams: Buffer,
  { localAddress = '127.0.0.1', acknowledges = true, reads = true } = {},
): Promise<void> {
  const options = { port, host: '127.0.0.1', localAddress, rejectUnauthorized: false, ALPNProtocols: ['h2'] };
  const socket = connect(options);
  sockets.add(socket);
  socket.resume().on('error', () => undefined);
  return new Promise((resolve) => {
    socket.once('close', () => resolve());
    socket.once('secureConnect', () => {
      socket.write(FIRST);
      // The window takes effect with the settings, so the streams come after the gate's own first frame.
      socket.once('data', () => {
        if (!reads) socket.pause();
        if (acknowledges) socket.write(toFrame(FRAME.settings, FLAG.ack, 0));
        socket.write(streams, () => resolve());
      });
    });
  });
}

/** Starts a gate with TLS in a cgroup. */
async function start(mebibytes: number, trustedProxies: readonly string[] = []): Promise<CgroupGate> {
  const pair = makeAuthority(folder, 'root').issue('server', 'DNS:localhost');
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
  const sections = { routes: [toRoute(app.port)], listen: { address: '127.0.0.1:0', tls, trustedProxies } };
  gate = await startGateInCgroup(mebibytes, sections, toTlsFiles(pair));
  return gate;
}

function toPing(): Buffer {
  return toFrame(FRAME.ping, 0, 0, Buffer.alloc(8));
}

/** Sends bytes on all connections, which the gate reads in one turn of its event loop. */
async function burst({ child }: CgroupGate, bytes: Buffer): Promise<void> {
  child.kill('SIGSTOP');
  await Promise.all([...sockets].map((socket) => new Promise((resolve) => socket.write(bytes, resolve))));
  child.kill('SIGCONT');
}

async function expectAvailable(running: CgroupGate): Promise<void> {
  expect(await sendDelivery(running.port, makeDelivery(), true)).toBe(200);
  expect({ alive: running.isAlive(), oomKills: running.oomKills() }).toEqual({ alive: true, oomKills: 0 });
}

describe.skipIf(NO_CGROUPS !== undefined)('a gate with TLS', { timeout: 240_000 }, () => {
  test.each([
    [LARGER, 'GET', 512],
    [LARGER, 'POST', 100],
    [SMALLEST, 'GET', CONNECTIONS],
  ] as const)(
    'of %i MiB handles deliveries while a client takes no response to its rejected %s requests on %i connections',
    async (mebibytes, method, connections) => {
      const running = await start(mebibytes);
      const streams = Buffer.concat(Array.from({ length: STREAMS }, (_, index) => toStream(index, method)));
      for (let left = connections; left > 0; left -= BATCH) {
        await Promise.all(Array.from({ length: Math.min(left, BATCH) }, () => hold(running.port, streams)));
        if (mebibytes === SMALLEST) await expectAvailable(running);
      }
      await expectAvailable(running);
    },
  );

  test(`of ${SMALLEST} MiB handles deliveries while two clients keep ${CONNECTIONS} idle sessions`, async () => {
    const running = await start(SMALLEST);
    for (let i = 0; i < CONNECTIONS; i += BATCH) {
      await Promise.all(
        Array.from({ length: BATCH }, (_, j) =>
          hold(running.port, Buffer.alloc(0), { localAddress: ADDRESSES[j % 2] as string }),
        ),
      );
      await expectAvailable(running);
    }
  });

  test.each([
    [LARGER, 'reset requests', RESETS, toResetStream],
    [MEDIUM, 'reset requests', RESETS, toResetStream],
    [SMALLEST, 'reset requests', RESETS, toResetStream],
    [SMALLEST, 'reset requests with many fields', RESETS, (index: number) => toResetStream(index, LONG_HEAD)],
    [SMALLEST, 'PING frames', PINGS, toPing],
  ] as const)(
    `of %i MiB handles deliveries while ${IDLE} idle sessions send %s in the same moment`,
    async (mebibytes, _, count, toFrames) => {
      const running = await start(mebibytes);
      for (let i = 0; i < IDLE; i += BATCH)
        await Promise.all(Array.from({ length: BATCH }, () => hold(running.port, Buffer.alloc(0), { acknowledges: false })));
      await burst(running, Buffer.concat(Array.from({ length: count }, (_, index) => toFrames(index))));
      await expectAvailable(running);
    },
  );

  test.each([
    [SMALLEST, 'a trusted proxy', 60, 1],
    [LARGER, 'a trusted proxy', 200, 1],
    [SMALLEST, 'eight clients', 240, 8],
    [LARGER, 'sixteen clients', 480, 16],
  ] as const)(
    'of %i MiB handles deliveries while %s read no replies to invalid heads on %i connections',
    async (mebibytes, _, connections, addresses) => {
      const running = await start(mebibytes, addresses === 1 ? ['127.0.0.1'] : []);
      const toHead = (id: number): Buffer => toFrame(FRAME.headers, FLAG.endHeaders + FLAG.endStream, id, INVALID_HEAD);
      const heads = Buffer.concat(Array.from({ length: INVALID_HEADS }, (_, index) => toHead(2 * index + 1)));
      for (let i = 0; i < connections; i += BATCH)
        await Promise.all(
          Array.from({ length: Math.min(BATCH, connections - i) }, (_, j) => {
            const localAddress = addresses === 1 ? '127.0.0.1' : `127.0.0.${10 + ((i + j) % addresses)}`;
            return hold(running.port, Buffer.alloc(0), { localAddress, reads: false });
          }),
        );
      for (const socket of sockets) socket.write(heads);
      await expectAvailable(running);
    },
  );

  test(`of ${LARGER} MiB needs less than half of it while a client takes no response to requests with ${MOST_FIELDS} fields`, async () => {
    const running = await start(LARGER);
    const streams = Buffer.concat(Array.from({ length: STREAMS }, (_, index) => toStream(index, 'GET', MOST_FIELDS)));
    await Promise.all(Array.from({ length: 2 * BATCH }, () => hold(running.port, streams)));
    await expectAvailable(running);
    expect(running.peak()).toBeLessThan((LARGER / 2) * 1_048_576);
  });
});
