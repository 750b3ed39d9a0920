import { createServer, type ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { type Clock, systemClock } from '../../../../src/core/clock.ts';
import { findPause } from '../../../../src/core/reading.ts';
import { refuse } from '../../../../src/core/refusal.ts';
import { createForwarder, type ForwardRoute } from '../../../../src/gateway/upstream/forwarder.ts';
import { HeaderPolicy } from '../../../../src/gateway/upstream/headers.ts';
import { type ForwardOutcome, toSettlement } from '../../../../src/gateway/upstream/outcome.ts';
import { HttpClient } from '../../../../src/http/client/pool.ts';
import type { Upstream, UpstreamFailure, UpstreamListener } from '../../../../src/http/client/upstream.ts';
import { makeAdmitted } from '../../../support/admitted.ts';
import { send, sendRaw } from '../../../support/client.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';
import { startServer } from '../../../support/fixtures.ts';
import { answering, type Script, startScriptApp } from '../../../support/script-app.ts';

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

const ROUTE: ForwardRoute = {
  policy: new HeaderPolicy({ route: 'billing', forwardAuthorization: true }),
  resend: 'idempotent',
  allowResponseHeaders: new Set(),
  connectFailureCode: 'upstream_away',
  readLimits: { sendTimeout: 30_000, minRate: 10_240, enforcedAfter: 300_000, onStall: () => undefined },
};

/** A server that forwards every request, without gates. */
interface Relay {
  readonly port: number;
  readonly outcomes: ForwardOutcome[];
  readonly responses: ServerResponse[];
}

interface RelayOptions {
  readonly body?: string;
  /** The requests are verified webhooks. */
  readonly isEvent?: boolean;
}

async function startRelay(
  upstream: Upstream,
  clock: Clock = systemClock,
  route: ForwardRoute = ROUTE,
  { body = '{}', isEvent = true }: RelayOptions = {},
): Promise<Relay> {
  const forwarder = createForwarder(route, upstream, clock);
  const outcomes: ForwardOutcome[] = [];
  const responses: ServerResponse[] = [];
  const server = createServer((request, response) => {
    const { method = '', url = '', rawHeaders } = request;
    responses.push(response);
    const admitted = makeAdmitted({ method, path: url, headers: rawHeaders, body, clock, ...(isEvent && { claimed: {} }) });
    void forwarder.forward(admitted, response).then((outcome) => {
      outcomes.push(outcome);
      if (outcome.kind === 'failed') response.writeHead(599).end();
    });
  });
  return { port: await startServer(server), outcomes, responses };
}

/** An app that reads its second request on a connection that was kept alive, and closes it without a response. */
function scriptDyingOnSecond(): { readonly script: Script; readonly requests: number } {
  const dying = {
    requests: 0,
    script: (socket: Socket): void => {
      socket.on('data', () => {
        if (++dying.requests === 2) socket.destroy();
        else socket.write('HTTP/1.1 204 No Content\r\nKeep-Alive: timeout=60\r\n\r\n');
      });
    },
  };
  return dying;
}

async function openUpstream(script: Script, clock: Clock = systemClock): Promise<Upstream> {
  const app = await startScriptApp(script);
  const limits = {
    connectTimeout: 1_000,
    responseTimeout: 5_000,
    idleResponseTimeout: 5_000,
    idleTimeout: 4_000,
    maxConnections: 4,
    maxHeadBytes: 65_536,
  };
  const upstream = new HttpClient(clock).createUpstream({ host: '127.0.0.1', port: app.port, ...limits });
  closers.push(() => {
    upstream.destroy();
    app.close();
  });
  return upstream;
}

async function startRelayTo(
  script: Script,
  clock: Clock = systemClock,
  route: ForwardRoute = ROUTE,
  options: RelayOptions = {},
): Promise<Relay> {
  return startRelay(await openUpstream(script, clock), clock, route, options);
}

/** The response that a client gets, without Date. */
async function askRaw(relay: Relay, head: string): Promise<string> {
  const text = await sendRaw(relay.port, `${head}\r\n\r\n`);
  return text.replace(/^Date: .*\r\n/gm, '');
}

const GET = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: close';

/** Reads a paused connection to its end. */
async function countBytes(socket: Socket): Promise<number> {
  let received = 0;
  socket.on('data', (chunk: Buffer) => {
    received += chunk.length;
  });
  socket.resume();
  await new Promise((resolve) => socket.once('close', resolve));
  return received;
}

describe('the memory of the request body', () => {
  const LARGE_BODY = 'x'.repeat(32_000_000);
  const RESPONSE = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';
  const read: Script = (socket) => {
    let received = 0;
    socket.on('data', (chunk) => {
      received += chunk.length;
      if (received > LARGE_BODY.length) socket.write(RESPONSE);
    });
  };
  const respondFirst: Script = (socket) => {
    socket.once('data', () => {
      socket.pause();
      socket.write(RESPONSE);
    });
  };

  test.each([
    ['is unused after the response of an app that read it', read, true],
    ['is still used after the response of an app that did not read it', respondFirst, false],
  ])('%s', async (_, script, isRequestWritten) => {
    const relay = await startRelay(await openUpstream(script), systemClock, ROUTE, { body: LARGE_BODY });
    await askRaw(relay, 'POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close');
    expect(relay.outcomes).toMatchObject([{ kind: 'responded', status: 200, isRequestWritten }]);
  });
});

describe('the response', () => {
  test('reaches the sender with its status, reason, fields and body', async () => {
    const relay = await startRelayTo(answering('HTTP/1.1 202 Fine\r\nX-A: 1\r\nX-A: \xe9\r\nContent-Length: 5\r\n\r\nh\xe9l\0o'));
    expect(await askRaw(relay, GET)).toBe(
      'HTTP/1.1 202 Fine\r\nX-A: 1\r\nX-A: \xe9\r\nContent-Length: 5\r\nConnection: close\r\n\r\nh\xe9l\0o',
    );
    expect(relay.outcomes).toMatchObject([{ kind: 'responded', status: 202 }]);
  });

  test('reaches the sender in chunks if the app sends no length', async () => {
    for (const bytes of [
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n\r\n',
    ]) {
      const text = await askRaw(await startRelayTo(answering(bytes)), GET);
      expect(text).toContain('Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n');
    }
  });

  test('ends with the connection for a sender without chunked coding', async () => {
    const relay = await startRelayTo(answering('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n'));
    const text = await askRaw(relay, 'GET / HTTP/1.0');
    expect(text).toBe('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok');
  });

  test.each([
    [
      'HEAD',
      'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n',
      'HTTP/1.1 200 OK\r\nContent-Length: 99\r\nConnection: close\r\n\r\n',
    ],
    ['HEAD', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', 'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n'],
    ['GET', 'HTTP/1.1 204 None\r\nContent-Length: 0\r\n\r\n', 'HTTP/1.1 204 None\r\nConnection: close\r\n\r\n'],
    [
      'GET',
      'HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n',
      'HTTP/1.1 304 Same\r\nContent-Length: 9\r\nConnection: close\r\n\r\n',
    ],
    ['GET', 'HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n', 'HTTP/1.1 200 \r\nContent-Length: 0\r\nConnection: close\r\n\r\n'],
  ])('has no body if the method or status has none: %s, %j', async (method, bytes, expected) => {
    const relay = await startRelayTo(answering(bytes));
    expect(await askRaw(relay, `${method} / HTTP/1.1\r\nHost: a\r\nConnection: close`)).toBe(expected);
    expect(relay.outcomes).toMatchObject([{ kind: 'responded' }]);
  });

  test.each([10, 8_192, 8_193, 300_000])('of %i bytes arrives complete, also in pieces', async (size) => {
    const content = Buffer.from(Array.from({ length: size }, (_, i) => (i * 31) & 0xff));
    const relay = await startRelayTo((socket) => {
      socket.on('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
        for (let at = 0; at < size; at += 10_000) socket.write(content.subarray(at, at + 10_000));
      });
    });
    expect((await send(relay.port, { method: 'GET' })).body.equals(content)).toBe(true);
  });

  const TRAILED = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nContent-Type: x\r\n\r\n';
  test.each([
    ['TE: trailers', '0\r\nX-Sum: 1\r\n\r\n'],
    ['TE: gzip;q=0.5 ,\ttrailers', '0\r\nX-Sum: 1\r\n\r\n'],
    ['TE: trailersx', '0\r\n\r\n'],
    ['X: 1', '0\r\n\r\n'],
  ])('has trailers only for senders that accept them: %s', async (field, end) => {
    const text = await askRaw(await startRelayTo(answering(TRAILED)), `${GET}\r\n${field}`);
    expect(text.endsWith(`ok\r\n${end}`)).toBe(true);
  });

  const HINTED =
    'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nX-A: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';
  test('is preceded by the hints of 103', async () => {
    const text = await askRaw(await startRelayTo(answering(HINTED)), GET);
    expect(text.startsWith('HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n')).toBe(true);
  });

  test('has no further hints', async () => {
    const second = HINTED.replace('a.css', 'b.css');
    const text = await askRaw(await startRelayTo(answering(`${HINTED.split('HTTP/1.1 200')[0]}${second}`)), GET);
    expect([text.split('103 Early Hints').length, text.includes('a.css'), text.includes('b.css')]).toEqual([2, true, false]);
  });

  test.each([
    ['by a sender of HTTP/1.0', HINTED, 'GET / HTTP/1.0'],
    ['that Node would not write', HINTED.replace('</a.css>; rel=preload', 'nonsense'), GET],
    ['that say nothing', HINTED.replace('Link', 'X-Link'), GET],
    ['too large to wait for a client that does not read', HINTED.replace('a.css', 'a'.repeat(9_000)), GET],
    ['of another 1xx', HINTED.replace('103', '102'), GET],
  ])('has no hints %s', async (_title, bytes, head) => {
    const text = await askRaw(await startRelayTo(answering(bytes)), head);
    expect(text.startsWith('HTTP/1.1 200 OK\r\n')).toBe(true);
  });

  test('reaches even a POST that must not be repeated, on a reused connection', async () => {
    const seen: string[] = [];
    const relay = await startRelayTo((socket) => {
      socket.on('data', (bytes: Buffer) => {
        seen.push(bytes.toString('latin1'));
        if (seen.length === 2) socket.destroy();
        else socket.write('HTTP/1.1 204 No Content\r\n\r\n');
      });
    });
    for (const expected of [204, 599]) expect((await send(relay.port)).status).toBe(expected);
    expect(relay.outcomes[1]).toMatchObject({ kind: 'failed', failure: { kind: 'reset', nothingSent: false } });
    expect(seen[1]).toMatch(
      /^POST \/hooks\/billing HTTP\/1\.1\r\n[\s\S]*\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n\{\}$/,
    );
  });

  test.each([
    ['a POST with an event', 'always' as const, 'POST', true],
    ['a PUT with an event', 'always' as const, 'PUT', true],
    ['a PUT of a user', 'idempotent' as const, 'PUT', false],
  ])('is requested again if the connection was dead: %s, resend: %s', async (_title, resend, method, isEvent) => {
    const dying = scriptDyingOnSecond();
    const relay = await startRelayTo(dying.script, systemClock, { ...ROUTE, resend }, { isEvent });
    for (let i = 0; i < 2; i++) expect((await send(relay.port, { method })).status).toBe(204);
    expect(dying.requests).toBe(3);
  });

  test.each(['PUT', 'DELETE', 'GET'])('of an event by %s is not requested again: the app may have handled it', async (method) => {
    const dying = scriptDyingOnSecond();
    const relay = await startRelayTo(dying.script);
    for (const expected of [204, 599]) expect((await send(relay.port, { method })).status).toBe(expected);
    expect(dying.requests).toBe(2);
    expect(relay.outcomes[1]).toMatchObject({ kind: 'failed', failure: { kind: 'reset', nothingSent: false } });
  });
});

describe('a failure', () => {
  test.each([
    ['HTTP/1.1 2', 'upstream_unreachable', 'upstream_reset'],
    ['hello\r\n\r\n', 'upstream_invalid_response', 'upstream_invalid_response'],
    ['HTTP/1.1 200 OK\r\nX-A: a\rb\r\n\r\n', 'upstream_invalid_response', 'upstream_invalid_response'],
  ])('before the head is a refusal, with nothing written: %j', async (bytes, code, reason) => {
    const relay = await startRelayTo((socket) => socket.on('data', () => socket.end(bytes)));
    expect((await send(relay.port)).status).toBe(599);
    expect(relay.outcomes).toMatchObject([{ kind: 'failed', refusal: { code, reason }, failure: { nothingSent: false } }]);
  });

  test('to connect is a refusal, with nothing sent', async () => {
    const upstream = await openUpstream(() => undefined);
    const relay = await startRelay(upstream);
    closers.splice(0, 1)[0]?.();
    await settle();
    expect((await send(relay.port)).status).toBe(599);
    expect(relay.outcomes).toMatchObject([
      { kind: 'failed', refusal: { code: 'upstream_away', reason: 'upstream_connect' }, failure: { nothingSent: true } },
    ]);
  });

  test('to respond in time is a refusal', async () => {
    const clock = new FakeClock();
    let isAsked = false;
    const relay = await startRelayTo((socket) => {
      socket.on('data', () => {
        isAsked = true;
      });
    }, clock);
    const sent = send(relay.port);
    await expect.poll(() => isAsked).toBe(true);
    await clock.advance(5_100);
    expect((await sent).status).toBe(599);
    expect(relay.outcomes).toMatchObject([{ refusal: { code: 'upstream_timeout' }, upstreamMs: 5_000 }]);
  });

  test.each([
    ['a known length', 'Content-Length: 9\r\n\r\nhel'],
    ['chunks', 'Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n'],
  ])('in a body of %s disconnects the sender: never a clean end', async (_title, rest) => {
    const relay = await startRelayTo((socket) => {
      socket.on('data', () => {
        socket.write(`HTTP/1.1 200 OK\r\n${rest}`);
        setImmediate(() => socket.destroy());
      });
    });
    await expect(send(relay.port)).rejects.toThrow(/aborted|hang up|ECONNRESET/);
    expect(relay.outcomes).toMatchObject([{ kind: 'broken', status: 200, failure: { kind: 'reset' } }]);
  });

  test('of Node to write the head is a refusal that can still be sent', async () => {
    let aborted = 0;
    const upstream: Upstream = {
      send(_request, listener: UpstreamListener) {
        setImmediate(() => listener.onHead(200, 'split\r\nX-A: 1', []));
        return { resume: () => undefined, abort: () => aborted++ };
      },
      close: () => undefined,
      destroy: () => undefined,
    };
    const relay = await startRelay(upstream);
    expect((await send(relay.port)).status).toBe(599);
    expect(relay.outcomes).toMatchObject([{ kind: 'failed', failure: { kind: 'protocol', nothingSent: false } }]);
    expect(aborted).toBe(1);
  });
});

describe('a sender', () => {
  test('that disconnects does not abort the work of the app', async () => {
    let app: Socket | undefined;
    const relay = await startRelayTo((socket) =>
      socket.on('data', () => {
        app = socket;
      }),
    );
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    await expect.poll(() => app !== undefined).toBe(true);
    sender.destroy();
    await expect.poll(() => relay.responses[0]?.destroyed).toBe(true);
    app?.write('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello');
    await expect.poll(() => relay.outcomes).toMatchObject([{ kind: 'responded', status: 200 }]);
  });

  test('that disconnects during the response has the rest read and discarded', async () => {
    let app: Socket | undefined;
    const relay = await startRelayTo((socket) => {
      app = socket;
      socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello'));
    });
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    await new Promise((resolve) => sender.once('data', resolve));
    sender.destroy();
    await expect.poll(() => relay.responses[0]?.destroyed).toBe(true);
    app?.write('world');
    await expect.poll(() => relay.outcomes).toMatchObject([{ kind: 'responded', status: 200 }]);
  });

  /** More than all buffers between the app and the sender can hold. */
  const LARGE = 30_000_000;
  const serveLarge: Script = (socket) => {
    socket.on('data', () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${LARGE}\r\n\r\n`);
      socket.write(Buffer.alloc(LARGE));
    });
  };

  test('that is slow slows the app down, and gets everything', async () => {
    const relay = await startRelayTo(serveLarge);
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    sender.pause();
    const isPaused = (): boolean => relay.responses.some((response) => findPause(response) !== undefined);
    await expect.poll(isPaused, { timeout: 10_000 }).toBe(true);
    expect(relay.outcomes).toEqual([]);
    expect(relay.responses[0]?.writableLength).toBeLessThan(1_000_000);
    expect(await countBytes(sender)).toBeGreaterThan(LARGE);
    expect(relay.outcomes).toMatchObject([{ kind: 'responded' }]);
  });

  test('that is slow has a response in flight until all of it is sent, although the app is done', async () => {
    const send: Upstream['send'] = (_request, listener) => {
      listener.onHead(200, 'OK', ['Content-Length', String(LARGE)]);
      listener.onData(Buffer.alloc(LARGE));
      listener.onEnd([], true);
      return { resume: () => undefined, abort: () => undefined };
    };
    const relay = await startRelay({ send, close: () => undefined, destroy: () => undefined });
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    sender.pause();
    await expect.poll(() => relay.outcomes).toMatchObject([{ kind: 'responded' }]);
    // Otherwise node:http would treat the connection as idle, and close it with the idle ones.
    expect(relay.responses[0]?.writableEnded).toBe(false);
    expect(await countBytes(sender)).toBeGreaterThan(LARGE);
  });

  test('that reads nothing for 30 s is disconnected, and the response read to its end', async () => {
    const clock = new FakeClock();
    const relay = await startRelayTo(serveLarge, clock);
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    sender.on('error', () => undefined);
    sender.pause();
    const isPaused = (): boolean => relay.responses.some((response) => findPause(response) !== undefined);
    await expect.poll(isPaused, { timeout: 10_000 }).toBe(true);
    await settle();
    await clock.advance(29_900);
    expect(relay.responses[0]?.destroyed).toBe(false);
    await clock.advance(200);
    expect(relay.responses[0]?.destroyed).toBe(true);
    await expect.poll(() => relay.outcomes, { timeout: 5_000 }).toMatchObject([{ kind: 'responded', status: 200 }]);
    sender.destroy();
  });

  test('that stalled once and reads again gets everything, although the stall began more than 30 s ago', async () => {
    const clock = new FakeClock();
    const relay = await startRelayTo(serveLarge, clock, { ...ROUTE, readLimits: { ...ROUTE.readLimits, minRate: 0 } });
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    const ended = new Promise((resolve) => sender.once('close', resolve));
    sender.on('error', () => undefined).pause();
    await expect.poll(() => relay.responses[0]?.writableNeedDrain, { timeout: 10_000 }).toBe(true);
    await settle();
    await clock.advance(20_000);
    let received = 0;
    sender.on('data', (chunk: Buffer) => {
      received += chunk.length;
    });
    sender.resume();
    await new Promise((resolve) => relay.responses[0]?.once('drain', resolve));
    sender.pause();
    await clock.advance(11_000);
    expect(relay.responses[0]?.destroyed).toBe(false);
    sender.resume();
    await ended;
    expect(received).toBeGreaterThan(LARGE);
  });

  test('that reads too slowly over the whole response is disconnected, although it never stalls for 30 s', async () => {
    const clock = new FakeClock();
    const readLimits = { ...ROUTE.readLimits, minRate: 2 ** 30, enforcedAfter: 20_000 };
    const relay = await startRelayTo(serveLarge, clock, { ...ROUTE, readLimits });
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    sender.on('error', () => undefined);
    sender.pause();
    await expect.poll(() => relay.responses[0]?.writableNeedDrain).toBe(true);
    await settle();
    await clock.advance(25_000);
    expect(relay.responses[0]?.destroyed).toBe(false);
    sender.resume();
    await expect.poll(() => relay.responses[0]?.destroyed, { timeout: 5_000 }).toBe(true);
    sender.destroy();
  });

  test('that is slow gets its listeners once, however many chunks arrive meanwhile', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): number => warnings.push(warning);
    process.on('warning', onWarning);
    const pieces = `4000\r\n${'x'.repeat(0x4000)}\r\n${'1\r\nx\r\n'.repeat(200)}`;
    const relay = await startRelayTo(
      answering(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${pieces.repeat(1_000)}0\r\n\r\n`),
    );
    const sender = connect(relay.port, '127.0.0.1', () => sender.write(`${GET}\r\n\r\n`));
    sender.pause();
    const isPaused = (): boolean => relay.responses.some((response) => findPause(response) !== undefined);
    await expect.poll(isPaused, { timeout: 10_000 }).toBe(true);
    sender.resume();
    await new Promise((resolve) => sender.once('close', resolve));
    await settle();
    expect(relay.outcomes).toMatchObject([{ kind: 'responded' }]);
    process.off('warning', onWarning);
    expect(warnings).toEqual([]);
  });
});

describe('a request with a claim', () => {
  const OK = 'HTTP/1.1 200 OK\r\nKeep-Alive: timeout=60\r\nContent-Length: 0\r\n\r\n';
  const limits = {
    connectTimeout: 1_000,
    responseTimeout: 5_000,
    idleResponseTimeout: 5_000,
    idleTimeout: 60_000,
    maxConnections: 1,
    maxHeadBytes: 65_536,
  };
  const REQUEST = {
    method: 'POST',
    path: '/',
    headers: ['Host', 'a', 'Content-Length', '2'],
    body: Buffer.from('{}'),
    repeatable: true,
  };

  /** How each request ended, in order; `settle` waits for the sockets. */
  async function openPool(script: Script): Promise<{
    clock: FakeClock;
    ends: unknown[];
    requests: () => number;
    post: (leaseEndsAt?: number) => void;
  }> {
    const clock = new FakeClock();
    let requests = 0;
    const app = await startScriptApp((socket, connection) => {
      socket.on('data', () => requests++);
      script(socket, connection);
    });
    const upstream = new HttpClient(clock).createUpstream({ host: '127.0.0.1', port: app.port, ...limits });
    closers.push(() => {
      upstream.destroy();
      app.close();
    });
    const ends: unknown[] = [];
    const post = (leaseEndsAt?: number): void => {
      const listener: UpstreamListener = {
        onInformation: () => undefined,
        onHead: () => undefined,
        onData: () => undefined,
        onEnd: () => ends.push('responded'),
        onFailure: ({ kind, nothingSent }) => ends.push({ kind, nothingSent }),
      };
      upstream.send({ ...REQUEST, leaseEndsAt }, listener);
    };
    return { clock, ends, requests: () => requests, post };
  }

  test('is sent if the app can time out before the lease ends', async () => {
    const { ends, post } = await openPool(answering(OK));
    post(5_100);
    await expect.poll(() => ends).toEqual(['responded']);
  });

  test('is not sent if the app could still work on it when the lease ends', async () => {
    const { ends, post, requests } = await openPool(answering(OK));
    post(5_099);
    await expect.poll(() => ends).toEqual([{ kind: 'timeout', nothingSent: true }]);
    post();
    await expect.poll(() => ends.at(-1)).toBe('responded');
    expect(requests()).toBe(1);
  });

  test('is not sent after a wait for a connection that took too much of the lease', async () => {
    let respond: (() => void) | undefined;
    const { clock, ends, post, requests } = await openPool((socket) => {
      socket.on('data', () => {
        respond = () => socket.write(OK);
      });
    });
    post();
    await expect.poll(() => respond !== undefined).toBe(true);
    post(8_000);
    await clock.advance(3_000);
    respond?.();
    await expect.poll(() => ends).toEqual(['responded', { kind: 'timeout', nothingSent: true }]);
    expect(requests()).toBe(1);
  });

  test('is not sent again if the lease is too short by then, and the claim is held: the app may have got the first one', async () => {
    let drop: (() => void) | undefined;
    const { clock, ends, post, requests } = await openPool((socket) => {
      let count = 0;
      socket.on('data', () => {
        if (++count === 1) socket.write(OK);
        else drop = () => socket.destroy();
      });
    });
    post();
    await expect.poll(() => ends).toEqual(['responded']);
    post(9_000);
    await expect.poll(() => drop !== undefined).toBe(true);
    await clock.advance(4_500);
    drop?.();
    await expect.poll(() => ends.at(-1)).toEqual({ kind: 'timeout', nothingSent: false });
    expect(requests()).toBe(2);
  });

  test('is not released if its first connection was dead and the second cannot be opened', async () => {
    let close: (() => void) | undefined;
    const app = await startScriptApp((socket) => {
      let count = 0;
      socket.on('data', () => {
        if (++count === 1) return socket.write(OK);
        app.close();
        return true;
      });
    });
    close = app.close;
    closers.push(() => close?.());
    const upstream = new HttpClient(systemClock).createUpstream({ host: '127.0.0.1', port: app.port, ...limits });
    closers.push(() => upstream.destroy());
    const ends: unknown[] = [];
    const listener: UpstreamListener = {
      onInformation: () => undefined,
      onHead: () => undefined,
      onData: () => undefined,
      onEnd: () => ends.push('responded'),
      onFailure: ({ kind, nothingSent }) => ends.push({ kind, nothingSent }),
    };
    upstream.send(REQUEST, listener);
    await expect.poll(() => ends).toEqual(['responded']);
    upstream.send(REQUEST, listener);
    await expect.poll(() => ends.at(-1)).toEqual({ kind: 'connect', nothingSent: false });
  });
});

describe('the claim', () => {
  const failure = (nothingSent: boolean): UpstreamFailure => ({ kind: 'reset', nothingSent, detail: '' });
  const refusal = refuse('upstream_unreachable', 'upstream_reset');
  const cases: [string, ForwardOutcome, string][] = [
    ['confirmed after 200', { kind: 'responded', status: 200, upstreamMs: 1 }, 'confirm'],
    ['confirmed after 299', { kind: 'responded', status: 299, upstreamMs: 1 }, 'confirm'],
    ['released after 300', { kind: 'responded', status: 300, upstreamMs: 1 }, 'release'],
    ['released after 410', { kind: 'responded', status: 410, upstreamMs: 1 }, 'release'],
    ['released after 500', { kind: 'responded', status: 500, upstreamMs: 1 }, 'release'],
    ['released where nothing was sent', { kind: 'failed', refusal, failure: failure(true), upstreamMs: 1 }, 'release'],
    ['held where something was sent', { kind: 'failed', refusal, failure: failure(false), upstreamMs: 1 }, 'hold'],
    ['confirmed after a 200 that broke off', { kind: 'broken', status: 200, failure: failure(false), upstreamMs: 1 }, 'confirm'],
    ['released after a 500 that broke off', { kind: 'broken', status: 500, failure: failure(false), upstreamMs: 1 }, 'release'],
  ];
  test.each(cases)('is %s', (_title, outcome, settlement) => {
    expect(toSettlement(outcome)).toBe(settlement);
  });
});
