import { readFileSync } from 'node:fs';
import { connect as connectHttp2 } from 'node:http2';
import { request as openHttps } from 'node:https';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { answerJson } from '../support/api-server.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp, useAuthority, useGate, useScriptApp } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { FLAG, FRAME, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';
import { startInjector } from '../support/injector.ts';
import { readToEnd } from '../support/proxy.ts';
import { createRandom, mutate, randomBytes } from '../support/seeded.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const SEED = 20_261_121;
const NO_CONTENT = 'Content-Length: 0\r\n\r\n';
const CHUNKED = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n';
/** What the hostile app does with a connection's first bytes. */
let script: (socket: Socket) => void = (socket) => socket.end();

const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const app = useApp();
const hostile = useScriptApp((socket) => {
  socket.once('data', () => script(socket));
});
const gate = useGate(() => {
  const open = { name: 'open', match: { pathPrefix: '/open' }, upstream: `http://127.0.0.1:${hostile.port}`, allow: 'anyone' };
  return startGate(
    {
      listen: { address: '127.0.0.1:0', tls: { certFile: pair.cert, keyFile: pair.key } },
      authz: { address: '127.0.0.1:0' },
      proxy: {
        address: '127.0.0.1:0',
        requireTls: false,
        basic: { realm: 'egress', users: { file: 'users' } },
        allow: [`app.example:${hostile.port}`],
        denyPrivate: false,
      },
      routes: [open, toRoute(app.port)],
    },
    undefined,
    { users: makeEntry('Aladdin', 'open sesame') },
    { 'app.example': ['127.0.0.1'] },
  );
});
afterEach(async () => {
  expect(await deliver()).toBe(200);
  for (const scope of ['guarded', 'process'])
    expect(await gate.metric(`sidegate_escaped_errors_total{scope="${scope}"}`)).toBe(0);
});

/** A valid delivery's status. */
function deliver(): Promise<number> {
  return new Promise((resolve, reject) => {
    const { headers, body } = makeDelivery();
    const ca = readFileSync(authority.ca);
    const options = { port: gate.port, host: '127.0.0.1', ca, method: 'POST', path: '/hooks/billing', headers, agent: false };
    const outgoing = openHttps(options, (incoming) => {
      incoming.resume();
      incoming.on('end', () => resolve(incoming.statusCode ?? 0));
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/** Status of an HTTP/2 request to the hostile app; 0 where the stream was reset before the head. */
function askByHttp2(body?: string): Promise<number> {
  return new Promise((resolve) => {
    const session = connectHttp2(`https://localhost:${gate.port}`, {
      ca: readFileSync(authority.ca),
      lookup: (_host, _options, done) => done(null, [{ address: '127.0.0.1', family: 4 }]),
    });
    session.on('error', () => undefined);
    session.on('close', () => resolve(status));
    let status = 0;
    const method = body === undefined ? 'GET' : 'POST';
    const stream = session.request({ ':path': '/open/x', ':method': method, te: 'trailers' }, { endStream: body === undefined });
    if (body !== undefined) stream.end(body);
    stream.on('error', () => undefined);
    stream.on('response', (headers) => {
      status = Number(headers[':status']);
    });
    stream.resume();
    for (const event of ['end', 'close']) stream.on(event, () => session.destroy());
  });
}

/**
 * Everything that comes back for these bytes. The connection is cut after them where `isCut`. Where `isAwaited`, the gate ends it: Node takes a
 * client that ends its side for one that is gone, so that the response of the app would not be relayed.
 */
function exchange(
  port: number,
  bytes: Buffer | string,
  { isTls = false, isCut = false, isAwaited = false } = {},
): Promise<string> {
  const socket = isTls
    ? connectTls({ port, host: '127.0.0.1', servername: 'localhost', rejectUnauthorized: false })
    : connect(port, '127.0.0.1');
  socket.on('error', () => undefined);
  socket.once(isTls ? 'secureConnect' : 'connect', () => {
    if (typeof bytes === 'string') socket.write(bytes, 'latin1', onWritten);
    else socket.write(bytes, onWritten);
  });
  const onWritten = (): void => {
    if (isAwaited) return;
    if (!isCut) socket.end();
    else if (isTls) socket.destroy();
    else socket.resetAndDestroy();
  };
  return readToEnd(socket);
}

const askByHttp1 = (): Promise<string> =>
  exchange(gate.port, 'GET /open/x HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n', {
    isTls: true,
    isAwaited: true,
  });
const askByProxy = (): Promise<string> =>
  exchange(
    gate.proxyPort,
    `GET http://app.example:${hostile.port}/x HTTP/1.1\r\nHost: app.example:${hostile.port}\r\nProxy-Authorization: ${toBasic('Aladdin', 'open sesame').Authorization}\r\nConnection: close\r\n\r\n`,
    { isAwaited: true },
  );

const HUGE = 'x'.repeat(15_000);
const CASES: readonly (readonly [string, string | readonly string[]])[] = [
  [
    'repeats a single-valued trailer',
    `${CHUNKED}ETag: "a"\r\nETag: "b"\r\nX-Content-Type-Options: a\r\nX-Content-Type-Options: b\r\n\r\n`,
  ],
  [
    'sends trailers that are not its to send',
    `${CHUNKED}Content-Length: 5\r\nTransfer-Encoding: x\r\nConnection: y\r\nUpgrade: z\r\nTE: a\r\nHost: b\r\n\r\n`,
  ],
  ['sends illegal trailers', `${CHUNKED}a b: c\r\n\r\n`],
  ['sends trailers with a pseudo-field', `${CHUNKED}:status: 200\r\n\r\n`],
  ['sends huge trailers', `${CHUNKED}X: ${HUGE}\r\n\r\n`],
  [
    'repeats single-valued fields',
    `HTTP/1.1 200 OK\r\nETag: "a"\r\nETag: "b"\r\nContent-Type: text/html\r\nContent-Type: text/plain\r\n${NO_CONTENT}`,
  ],
  [
    'repeats fields with one value',
    `HTTP/1.1 200 OK\r\nETag: "a"\r\nETag: "a"\r\nContent-Encoding: gzip\r\nContent-Encoding: br\r\n${NO_CONTENT}`,
  ],
  [
    'sends fields of one hop',
    `HTTP/1.1 200 OK\r\nKeep-Alive: x\r\nProxy-Connection: y\r\nUpgrade: z\r\nTE: a\r\nHTTP2-Settings: b\r\n${NO_CONTENT}`,
  ],
  ['sends bytes that fields may not have', `HTTP/1.1 200 OK\r\nX: a\0b\r\nY: \xff\x7f\r\n${NO_CONTENT}`],
  ['sends a name that fields may not have', `HTTP/1.1 200 OK\r\nX Y: a\r\n${NO_CONTENT}`],
  ['sends text beyond ASCII', `HTTP/1.1 200 \xff\xfe\r\nX: \xff\xfe\r\n${NO_CONTENT}`],
  ['sends huge fields', `HTTP/1.1 200 OK\r\n${`X: ${HUGE}\r\n`.repeat(3)}${NO_CONTENT}`],
  ['sends fields without end', `HTTP/1.1 200 OK\r\n${`X: ${HUGE}\r\n`.repeat(100)}`],
  ...[0, 99, 150, 600, 999].map(
    (status) => [`answers ${status}`, `HTTP/1.1 ${String(status).padStart(3, '0')} X\r\n${NO_CONTENT}`] as const,
  ),
  ['switches protocols unasked', 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nxyz'],
  ...[100, 102, 103, 199].flatMap((status) => [
    [`answers ${status} 10,000 times`, `HTTP/1.1 ${status} X\r\nLink: </a>; rel=preload\r\n\r\n`.repeat(10_000)] as const,
    [
      `answers ${status} with huge fields`,
      `HTTP/1.1 ${status} X\r\nLink: ${HUGE}\r\nLink: ${HUGE}\r\n\r\nHTTP/1.1 200 OK\r\n${NO_CONTENT}`,
    ] as const,
  ]),
  ['hints at malformed links', `HTTP/1.1 103 X\r\nLink: <a\r\nLink: \xff\r\nLink:\r\n\r\nHTTP/1.1 200 OK\r\n${NO_CONTENT}`],
  ['answers twice', `HTTP/1.1 200 OK\r\n${NO_CONTENT}HTTP/1.1 200 OK\r\n${NO_CONTENT}`],
  [
    'sends chunk extensions of megabytes',
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;${'x'.repeat(4_000_000)}\r\na\r\n0\r\n\r\n`,
  ],
  ['sends a chunk of a huge size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\na'],
  ['sends a chunk of a negative size', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\na'],
  ...['-1', '+1', '99999999999999999999', '1e9', '0x10', '', '1, 1'].map(
    (length) => [`sends the length ${length}`, `HTTP/1.1 200 OK\r\nContent-Length: ${length}\r\n\r\nabc`] as const,
  ),
  ['sends two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab'],
  ['sends more than its length', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nabc'],
  ['sends content with 204 and 304', 'HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\nabc'],
  ['sends nothing', ''],
  ['sends bytes that are no HTTP', '\0\x01\x02\xff'.repeat(1_000)],
];

describe.each(CASES)('an app that %s', (_title, bytes) => {
  test.each([
    ['HTTP/1.1', askByHttp1],
    ['HTTP/2', askByHttp2],
    ['the forward proxy', askByProxy],
  ] as const)('ends only its own exchange, over %s', async (_protocol, ask) => {
    script = (socket) => {
      socket.end(bytes as string, 'latin1');
    };
    await ask();
  });
});

describe.each([
  ['HTTP/1.1', askByHttp1],
  ['HTTP/2', askByHttp2],
  ['the forward proxy', askByProxy],
] as const)('over %s', (_protocol, ask) => {
  // Node needs twice as long for each further parameter: seconds for 24 of them, and centuries for the 3,000 that fit into a head.
  test.each(['a=b', 'a=b=c', 'a="b"', 'a'])('rejects a malformed early hint with parameters %s at once', async (parameter) => {
    const link = `<a>${`;${parameter}`.repeat(24)}"`;
    script = (socket) => socket.end(`HTTP/1.1 103 X\r\nLink: ${link}\r\n\r\nHTTP/1.1 200 OK\r\n${NO_CONTENT}`);
    const startedAt = performance.now();
    await ask();
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });
});

test('sends a field once if the app repeats it with one value, and joins lists, over HTTP/2', async () => {
  script = (socket) => {
    socket.end(`HTTP/1.1 200 OK\r\nETag: "a"\r\nETag: "a"\r\nContent-Language: de\r\nContent-Language: en\r\n${NO_CONTENT}`);
  };
  expect(await askByHttp2()).toBe(200);
});

test('survives an app that resets the connection at every byte of its response', async () => {
  const bytes = Buffer.from(`HTTP/1.1 103 X\r\nLink: </a>\r\n\r\n${CHUNKED}X: y\r\n\r\n`);
  for (let length = 0; length <= bytes.length; length++) {
    script = (socket) => {
      socket.write(bytes.subarray(0, length), () => socket.resetAndDestroy());
    };
    await Promise.all([askByHttp1(), askByHttp2()]);
  }
});

test('survives an app that responds before it reads the body, and resets', async () => {
  for (const end of [(socket: Socket) => socket.end(), (socket: Socket) => socket.resetAndDestroy()]) {
    script = (socket) => {
      socket.pause();
      socket.write(`HTTP/1.1 413 X\r\n${NO_CONTENT}`, () => end(socket));
    };
    const head = 'POST /open/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n';
    await Promise.all([askByHttp2('x'.repeat(1_000_000)), exchange(gate.port, head + 'x'.repeat(1_000_000), { isTls: true })]);
  }
});

test('survives a client that disconnects at every byte of its request, on every port', async () => {
  script = (socket) => socket.end(`HTTP/1.1 200 OK\r\n${NO_CONTENT}`);
  const request = 'POST /open/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nX: y\r\n\r\n';
  const target = `app.example:${hostile.port}`;
  const tunnel = `CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\nProxy-Authorization: ${toBasic('Aladdin', 'open sesame').Authorization}\r\n\r\nabc`;
  const cut = { isCut: true };
  for (let length = 0; length <= tunnel.length; length++)
    await Promise.all([
      exchange(gate.port, request.slice(0, length), { isTls: true, ...cut }),
      exchange(gate.adminPort, request.slice(0, length), cut),
      exchange(gate.authzPort, request.slice(0, length), cut),
      exchange(gate.proxyPort, tunnel.slice(0, length), cut),
    ]);
});

test('survives HTTP/2 frames in random order with random content', async () => {
  const random = createRandom(SEED);
  const types = [...Object.values(FRAME), 2, 5, 10];
  const head = toBlock([
    [':method', 'POST'],
    [':scheme', 'https'],
    [':path', '/open/x'],
    [':authority', 'localhost'],
    ['te', 'trailers'],
  ]);
  script = (socket) => socket.end(`${CHUNKED}ETag: "a"\r\nETag: "b"\r\n\r\n`);
  for (let round = 0; round < 60; round++) {
    const { socket, closed } = await openFrames(gate.port, authority.ca);
    let stream = -1;
    for (let count = random(30); count > 0; count--) {
      if (random(3) === 0) {
        stream += 2;
        socket.write(toFrame(FRAME.headers, FLAG.endHeaders | random(2), stream, head));
      } else {
        const type = types[random(types.length)] as number;
        socket.write(toFrame(type, random(256), random(stream + 2), randomBytes(random, random(20))));
      }
    }
    if (random(2) === 0) socket.destroy();
    else socket.end();
    await closed;
  }
});

test('survives random bytes from apps and clients', async () => {
  const random = createRandom(SEED);
  const response = Buffer.from(`HTTP/1.1 103 X\r\nLink: </a>\r\n\r\n${CHUNKED}ETag: "y"\r\n\r\n`);
  const request = Buffer.from(
    'POST /open/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n',
  );
  for (let round = 0; round < 150; round++) {
    const bytes = random(4) === 0 ? randomBytes(random, random(500)) : mutate(random, response, 4);
    script = (socket) => socket.end(bytes);
    const sent = random(4) === 0 ? randomBytes(random, random(500)) : mutate(random, request, 3);
    await Promise.all([
      askByHttp1(),
      askByHttp2(),
      exchange(gate.port, sent, { isTls: true }),
      ...[gate.port, gate.adminPort, gate.authzPort, gate.proxyPort].map((port) => exchange(port, sent)),
    ]);
  }
});

test('the admission port survives random bytes and clients that disconnect', async () => {
  const tls = join(makeFolder(), 'admission');
  const injector = await startInjector(
    (_request, reply) => answerJson(reply, 200, { major: '1', minor: '34' }),
    () => ({ certificate: { directory: tls } }),
  );
  const random = createRandom(SEED);
  const request = Buffer.from(
    'POST /inject HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}',
  );
  for (let round = 0; round < 100; round++) {
    const sent = random(2) === 0 ? randomBytes(random, random(300)) : mutate(random, request, 3);
    await Promise.all([
      exchange(injector.port, sent, { isCut: random(2) === 0 }),
      exchange(injector.port, sent, { isTls: true, isCut: random(2) === 0 }),
    ]);
  }
  expect(await injector.metric('sidegate_injector_escaped_errors_total{scope="guarded"}')).toBe(0);
  await injector.stop();
});
