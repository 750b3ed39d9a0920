import { connect } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createMetrics } from '../../../src/app/metrics.ts';
import { ConfigSchema } from '../../../src/config/schema/schema.ts';
import type { User } from '../../../src/core/admitted.ts';
import { systemClock } from '../../../src/core/clock.ts';
import type { VerifiedEvent } from '../../../src/core/event.ts';
import { acknowledge, Refusal, refuse, type StageName } from '../../../src/core/refusal.ts';
import { type AppRoute, ExchangePort } from '../../../src/gateway/exchange.ts';
import { Capacity } from '../../../src/gateway/pipeline/capacity.ts';
import type { ClaimGate, HeadGate, RouteGates, WebhookGates } from '../../../src/gateway/pipeline/gates/gate.ts';
import { CurrentRoutes } from '../../../src/gateway/pipeline/router.ts';
import type { ForwardOutcome } from '../../../src/gateway/upstream/outcome.ts';
import { ListenServer } from '../../../src/http/server/server.ts';
import { Journal } from '../../../src/telemetry/journal/journal.ts';
import { createLogger } from '../../../src/telemetry/log/logger.ts';
import { Tracer } from '../../../src/telemetry/tracing/tracer.ts';
import { send } from '../../support/client.ts';
import { createMemory } from '../../support/memory.ts';

const CONFIG = ConfigSchema.parse({
  listen: { address: '127.0.0.1:0' },
  routes: [
    {
      name: 'a',
      match: { path: '/hooks/billing' },
      upstream: 'http://127.0.0.1:1',
      webhook: { keys: [{ name: 'k', secret: { env: 'X' } }] },
    },
  ],
});

const lines: string[] = [];
let journal: Journal;
let server: ListenServer;
let port: number;
let requests: ExchangePort;
let isLogBroken = false;

beforeEach(async () => {
  lines.length = 0;
  journal = new Journal({ size: 9, maxBytes: 100_000 });
  isLogBroken = false;
  const logger = createLogger({
    level: 'info',
    version: 'test',
    destination: { write: (line: string) => void lines.push(line) },
  });
  const metrics = createMetrics({ version: 'test', processMetrics: false });
  const nothing = (): void => undefined;
  const request: typeof logger.request = (line) => {
    if (isLogBroken) throw new Error('the log is broken');
    logger.request(line);
  };
  const capacity = new Capacity(CONFIG.limits, systemClock, { onInFlight: nothing, onQueued: nothing });
  const routes = new CurrentRoutes<AppRoute>();
  requests = new ExchangePort({
    tracing: { tracer: new Tracer({ part: 'pass', sampleRatio: 0 }) },
    clock: systemClock,
    logger: { ...logger, request },
    journal,
    metrics,
    unrouted: metrics.route(undefined),
    find: routes.find,
  });
  server = new ListenServer({
    listen: CONFIG.listen,
    tls: undefined,
    limits: CONFIG.limits,
    memory: createMemory(),
    clock: systemClock,
    handler: requests,
    onLimit: nothing,
    connections: { add: nothing },
  });
  port = (await server.listen()).port;
  forward = () => Promise.reject(new Error('must not be reached'));
  const forwarder: AppRoute['forwarder'] = { forward: (admitted, response) => forward(admitted, response) };
  const open = (gates: RouteGates): void => {
    routes.replace([
      {
        to: 'app',
        name: 'a',
        match: { allowInPath: [], trustAppToDistinguish: [], path: '/hooks/billing', methods: ['POST'] },
        gates,
        gateIdentity: 'a',
        forwardMethodOverride: false,
        challenges: ['C'],
        isOpen: false,
        mode: 'enforce',
        capacity,
        forwarder,
        forwardTime: 0,
        identity: { route: 'a' },
        metrics: metrics.route('a'),
        trace: { trust: 'verified', template: '/hooks/billing', app: undefined },
      },
    ]);
  };
  openWith = open;
});
afterEach(() => server.destroy());
let forward: AppRoute['forwarder']['forward'];
let openWith: (gates: RouteGates) => void;

const toHead = (check: HeadGate['check']): RouteGates => ({ handshake: { check } });
const IN: RouteGates = { password: { check: () => ({ name: 'a' }) } };
/** A verified event, and gates that claim it. */
const toClaims = (...claims: ClaimGate['claim'][]): RouteGates => ({
  webhook: {
    event: { maxBody: 100, check: () => () => ({ id: 'evt_1', timestamp: 0, keyName: 'k', body: Buffer.from('{}') }) },
    verified: [],
    claims: claims.map((claim) => ({ claim })),
  },
});

/** A gate for events that decides by the head. */
const toEvent = (check: WebhookGates['event']['check']): RouteGates => ({
  webhook: { event: { maxBody: 100, check }, verified: [], claims: [] },
});

describe('a gate that throws', () => {
  test.each([
    [
      'at once',
      toHead(() => {
        throw new Error('boom');
      }),
    ],
    ['later', toHead(() => Promise.reject(new Error('boom')))],
  ])('%s is a refusal, and reveals nothing to the sender', async (_, gates) => {
    openWith(gates);
    const answer = await send(port);
    expect([answer.status, answer.code]).toEqual([500, 'internal_error']);
    expect(answer.text).not.toContain('boom');
    expect(lines.join('')).toContain('boom');
    expect(requests.inFlight).toBe(0);
  });

  test('after the claim leaves it to its lease, because it is unknown what the app received', async () => {
    const calls: string[] = [];
    const claim = { confirm: () => calls.push('confirm'), release: () => calls.push('release'), hold: () => calls.push('hold') };
    openWith(
      toClaims(
        () => ({ claim, isStale: false, isUnchecked: false, expiresAt: Number.POSITIVE_INFINITY }),
        () => {
          throw new Error('boom');
        },
      ),
    );
    expect((await send(port)).status).toBe(500);
    expect(calls).toEqual(['hold']);
  });
});

describe('a claim, if a later gate rejects the request,', () => {
  test.each([
    ['is confirmed if the event is stale, because it needs no retry', 'stale', 'stale', 'confirm'],
    ['is released if the event was in progress, because the retry must be forwarded', 'in_progress', 'resource_busy', 'release'],
    ['is released if the store was unreachable', 'store_unavailable', 'order_unavailable', 'release'],
  ] as const)('%s', async (_title, code, reason, expected) => {
    const calls: string[] = [];
    const claim = { confirm: () => calls.push('confirm'), release: () => calls.push('release'), hold: () => calls.push('hold') };
    openWith(
      toClaims(
        () => ({ claim, isStale: false, isUnchecked: false, expiresAt: Number.POSITIVE_INFINITY }),
        () => (code === 'stale' ? acknowledge({ state: 'stale' }) : refuse(code, reason)),
      ),
    );
    expect((await send(port)).code).toBe(code);
    expect(calls).toEqual([expected]);
  });
});

test('a route whose gates verified nothing forwards nothing', async () => {
  openWith(toHead(() => undefined));
  expect((await send(port)).code).toBe('internal_error');
  expect(lines.join('')).toContain('no gate of route a verified the request');
});

test.each([
  ['an event', toEvent(() => () => Buffer.from('{}') as unknown as VerifiedEvent)],
  ['a user', { password: { check: () => ({}) as User } }],
])('a route whose gate returned something else in place of %s forwards nothing', async (_, gates) => {
  openWith(gates);
  expect((await send(port)).code).toBe('internal_error');
  expect(lines.join('')).toContain('no gate of route a verified the request');
});

test('waits for a promise of another class than the global one', async () => {
  const refusal = refuse('handshake_refused', 'handshake_refused');
  // biome-ignore lint/suspicious/noThenProperty: as a promise of another library has it.
  openWith(toHead(() => ({ then: (next: (value: Refusal) => void) => next(refusal) }) as unknown as Promise<Refusal>));
  expect((await send(port)).code).toBe('handshake_refused');
});

test.each<[StageName, RouteGates]>([
  ['login', { certificate: { check: () => refuse('certificate_required', 'no_certificate') } }],
  ['signature', toHead(() => refuse('handshake_refused', 'handshake_refused'))],
  ['content', { content: { check: () => refuse('malformed_request', 'malformed') } }],
  ['login', { password: { check: () => refuse('malformed_request', 'malformed') } }],
  ['route', { ...IN, destination: { check: async () => refuse('destination_denied', 'destination_not_allowed') } }],
  ['signature', toEvent(() => refuse('missing_signature', 'missing_signature'))],
  ['timestamp', toEvent(() => refuse('timestamp_outside_tolerance', 'timestamp_old', { stage: 'timestamp' }))],
  ['content', { ...toClaims(), content: { check: () => () => refuse('unsupported_media_type', 'unsupported_media_type') } }],
  ['dedup', toClaims(() => refuse('in_progress', 'in_progress'))],
  ['dedup', toClaims(() => Promise.reject(new Error('boom')))],
])('the journal says that a refusal was at the stage %s, as its gate does', async (stage, gates) => {
  openWith(gates);
  await send(port);
  expect(journal.find({ limit: 1 })[0]?.details?.stoppedAt).toBe(stage);
});

test('the journal says that a body which is too large was rejected for its content, and an unknown path for its route', async () => {
  openWith(toClaims());
  await send(port, { body: 'x'.repeat(101) });
  await send(port, { path: '/elsewhere' });
  expect(journal.find({ limit: 2 }).map(({ details }) => details?.stoppedAt)).toEqual(['route', 'content']);
});

describe('the memory of a large body', () => {
  const BYTES = 100_000;
  /** Reads the body, as a gate that checks a signature does. */
  const reading = async (outcome: ForwardOutcome | Refusal): Promise<Buffer> => {
    let content: Buffer | undefined;
    openWith({
      webhook: {
        event: {
          maxBody: BYTES,
          check: () => (body) => {
            content = body;
            return { id: 'evt_1', timestamp: 0, keyName: 'k', body };
          },
        },
        verified: [],
        claims: outcome instanceof Refusal ? [{ claim: () => outcome }] : [],
      },
    });
    forward = async (_admitted, response) => {
      response.writeHead(200, undefined, []);
      response.end();
      return outcome as ForwardOutcome;
    };
    await send(port, { body: 'x'.repeat(BYTES) });
    await requests.idle();
    return content as Buffer;
  };
  const responded = { kind: 'responded', status: 200, upstreamMs: 0 } as const;

  test('is freed at once after a response to a request that was written', async () => {
    expect(await reading({ ...responded, isRequestWritten: true })).toHaveLength(0);
  });

  test('is freed at once if nothing was sent to the app', async () => {
    expect(await reading(refuse('in_progress', 'in_progress'))).toHaveLength(0);
  });

  test.each<[string, ForwardOutcome]>([
    ['the app responded before all of it was written', { ...responded, isRequestWritten: false }],
    ['the exchange does not say it', responded],
    ['the exchange failed', { kind: 'aborted', status: 200, refusal: undefined, upstreamMs: 0 }],
  ])('is left to the garbage collector if %s', async (_, outcome) => {
    expect(await reading(outcome)).toHaveLength(BYTES);
  });

  test('is freed even if the log fails', async () => {
    isLogBroken = true;
    expect(await reading({ ...responded, isRequestWritten: true })).toHaveLength(0);
  });
});

test('a failing log ends neither the process nor the next request', async () => {
  openWith(toHead(() => refuse('route_not_found', 'route_not_found')));
  isLogBroken = true;
  await send(port).catch(() => undefined);
  isLogBroken = false;
  expect((await send(port)).status).toBe(404);
  expect(lines.join('')).toContain('internal_error');
  await requests.idle();
});

test('a request is in flight until its response has left the process', async () => {
  const length = 30_000_000;
  forward = async (_admitted, response) => {
    response.writeHead(200, undefined, ['Content-Length', String(length), 'Connection', 'close']);
    response.write(Buffer.alloc(length));
    response.end();
    return { kind: 'responded', status: 200, upstreamMs: 0 };
  };
  openWith(IN);
  const socket = connect(port, '127.0.0.1', () => socket.write('POST /hooks/billing HTTP/1.1\r\nHost: a\r\n\r\n'));
  await new Promise((resolve) => socket.once('readable', resolve));
  await expect.poll(() => lines.length).toBe(1);
  expect(requests.inFlight).toBe(1);
  let received = 0;
  for await (const chunk of socket) received += (chunk as Buffer).length;
  expect(received).toBeGreaterThan(length);
  await requests.idle();
  expect(requests.inFlight).toBe(0);
});

test('a sender that disconnects before its response has left the process blocks nothing', async () => {
  forward = async (_admitted, response) => {
    response.writeHead(200, undefined, []);
    response.write(Buffer.alloc(30_000_000));
    response.end();
    return { kind: 'responded', status: 200, upstreamMs: 0 };
  };
  openWith(IN);
  // The second waits for the response to the first, which never ends.
  const head = 'POST /hooks/billing HTTP/1.1\r\nHost: a\r\n\r\n';
  const socket = connect(port, '127.0.0.1', () => socket.write(`${head}${head}`));
  await expect.poll(() => lines.length).toBe(1);
  expect(requests.inFlight).toBe(1);
  socket.destroy();
  await requests.idle();
  expect(lines).toHaveLength(1);
});
