import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { toHead, toTinyChunks } from '../support/floods.ts';
import { floodHttp2, openTinyFrames } from '../support/floods-http2.ts';
import { until } from '../support/gate.ts';
import { ATTACKS, expectSurvival, sendDelivery, toSections } from '../support/memory-attacks.ts';
import { type CgroupProcess, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { sendSmallReview, startInjectorInCgroup, toReview } from '../support/memory-injector.ts';
import { encodePart, RSA_PAIR, toPem } from '../support/tokens.ts';

const FLOOD_MS = 1_500;
const REVIEW = { 'Content-Type': 'application/json' };
const LARGE_REVIEW = toReview(1_000_000);
const app = useApp();
const authority = useAuthority();
const { ca } = authority;
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
let running: CgroupProcess | undefined;

afterEach(async () => {
  await running?.stop();
  running = undefined;
});

/** An open route to an app that never answers. */
function toStalledSections(over: object = {}): object & Record<string, unknown> {
  app.handler = ({ url }, response) => {
    if (url.startsWith('/hooks')) response.end('handled');
  };
  const open = { name: 'open', match: { pathPrefix: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const { routes } = toSections(app.port) as { routes: object[] };
  return { ...over, routes: [...routes, open], limits: { queueTimeout: '60s' } };
}

/** A webhook route beside one with tokens, whose key is in `file`. */
function withTokens(scheme: string, file: string): Record<string, unknown> {
  const webhook = { scheme, keys: [{ name: 'k', secret: { file } }] };
  const { routes } = toSections(app.port) as { routes: object[] };
  return {
    routes: [...routes, { name: 'tokens', match: { path: '/tokens' }, upstream: `http://127.0.0.1:${app.port}`, webhook }],
  };
}

const startTls = (sections: Record<string, unknown>): ReturnType<typeof startGateInCgroup> => {
  const listen = { address: '127.0.0.1:0', tls: { certFile: pair.cert, keyFile: pair.key } };
  return startGateInCgroup(128, { listen, ...sections });
};

describe.skipIf(NO_CGROUPS !== undefined)('small deliveries are handled, and nothing is killed', () => {
  test.each([96, 192])(
    'during floods of bodies at a gate with %i MiB',
    async (mebibytes) => {
      app.handler = (_request, response) => {
        app.received.length = 0;
        response.end('handled');
      };
      const gate = await startGateInCgroup(mebibytes, toSections(app.port));
      running = gate;
      const flood = { connections: 128, milliseconds: FLOOD_MS };
      await expectSurvival(gate, { ...flood, connections: 2, attack: ATTACKS['chunks of one byte'] });
      await expectSurvival(gate, { ...flood, attack: ATTACKS['forged bodies with a length'] });
      await expectSurvival(gate, { ...flood, attack: ATTACKS['valid bodies'] });
    },
    60_000,
  );

  test('while an app reads bodies of one-byte chunks', async () => {
    const gate = await startGateInCgroup(128, toStalledSections());
    running = gate;
    const attack = function* (): Iterable<Buffer | string> {
      yield toHead('/open', { 'Transfer-Encoding': 'chunked' });
      yield* toTinyChunks(80_000);
    };
    await expectSurvival(gate, { connections: 64, milliseconds: 2 * FLOOD_MS, attack });
  }, 60_000);

  const toClaims = (values: number): string => encodePart(`{"a":[${'{},'.repeat(values)}{}]}`);

  test('while clients that sent tokens with many claims do not send their bodies', async () => {
    const gate = await startGateInCgroup(96, withTokens('netlify', 'secret'));
    running = gate;
    const token = `${encodePart({ alg: 'HS256' })}.${toClaims(3_500)}.${encodePart('x'.repeat(32))}`;
    const head = toHead('/tokens', { 'Content-Type': 'application/json', 'X-Webhook-Signature': token, 'Content-Length': '10' });
    await expectSurvival(gate, { connections: 500, milliseconds: 2 * FLOOD_MS, attack: () => [head, '{'] });
  }, 60_000);

  test('during floods of forged tokens in bodies', async () => {
    const gate = await startGateInCgroup(96, withTokens('wix', 'public.pem'), { 'public.pem': toPem(RSA_PAIR.publicKey) });
    running = gate;
    const token = `${encodePart({ alg: 'RS256' })}.${toClaims(4_990)}.${encodePart('x'.repeat(256))}`;
    const head = toHead('/tokens', { 'Content-Type': 'text/plain', 'Content-Length': String(token.length) });
    await expectSurvival(gate, { connections: 500, milliseconds: 2 * FLOOD_MS, attack: () => [head, token] });
  }, 60_000);

  test('during floods of bodies over HTTP/2', async () => {
    app.handler = (_request, response) => {
      app.received.length = 0;
      response.end('handled');
    };
    const gate = await startTls(toSections(app.port));
    running = gate;
    const { headers } = makeDelivery();
    const flood = { port: gate.port, sessions: 4, streams: 40, milliseconds: 2 * FLOOD_MS };
    const flooding = floodHttp2({ ...flood, headers, body: Buffer.alloc(1_000_000) });
    expect(await sendDelivery(gate.port, makeDelivery(), true)).toBe(200);
    await flooding;
    expect(await sendDelivery(gate.port, makeDelivery(), true)).toBe(200);
    expect({ alive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ alive: true, oomKills: 0 });
  }, 60_000);

  test('while an app reads HTTP/2 frames of one byte', async () => {
    const gate = await startTls(toStalledSections());
    running = gate;
    const ends = await Promise.all(Array.from({ length: 20 }, () => openTinyFrames(gate.port, ca, '/open')));
    expect(await sendDelivery(gate.port, makeDelivery(), true)).toBe(200);
    for (const end of ends) end();
    expect({ alive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ alive: true, oomKills: 0 });
  }, 60_000);

  test('during floods of reviews at an injector with 128 MiB', async () => {
    const injector = await startInjectorInCgroup(128);
    running = injector;
    const flood = { isTls: true, milliseconds: FLOOD_MS, honest: sendSmallReview };
    const chunks = function* (): Iterable<Buffer | string> {
      yield toHead('/inject', { ...REVIEW, 'Transfer-Encoding': 'chunked' });
      yield* toTinyChunks(3_000_000);
    };
    const reviews = (): string[] => [
      toHead('/inject', { ...REVIEW, 'Content-Length': String(LARGE_REVIEW.length) }),
      LARGE_REVIEW,
    ];
    await expectSurvival(injector, { ...flood, connections: 2, attack: chunks });
    await expectSurvival(injector, { ...flood, connections: 64, attack: reviews });
  }, 60_000);
});

/** Whether a TLS connection is closed before its handshake is over. */
function isTurnedAway(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false });
    socket.once('secureConnect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.once('error', () => resolve(true));
  });
}

test.skipIf(NO_CGROUPS !== undefined)(
  'a gate that is short of memory closes connections before the TLS handshake, which needs more memory than a request',
  async () => {
    // So little of the heap that a gate that has just started is above it.
    const gate = await startTls({ ...toSections(app.port), limits: { heapShed: 0.1 } });
    running = gate;
    expect(await until(() => isTurnedAway(gate.port))).toBe(true);
    expect(gate.isAlive()).toBe(true);
  },
);
