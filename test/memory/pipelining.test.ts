/** Pipelined requests on every port, under the memory limit of the smallest container: before the gate admits them, and behind a slow app. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { makeAuthority } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { type Sections, toRoute } from '../support/gate.ts';
import { FLAG, FRAME, PREFACE, toBlock, toFrame } from '../support/h2-frames.ts';
import { sendDelivery } from '../support/memory-attacks.ts';
import { type CgroupGate, type CgroupProcess, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import { type CgroupInjector, sendSmallReview, startInjectorInCgroup } from '../support/memory-injector.ts';
import { floodPipelined, type PipelinedFlood } from '../support/pipelined-flood.ts';
import { PROXY_AUTH, PROXY_PASSWORD, PROXY_USER } from '../support/proxy.ts';
import { makeEntry } from '../support/users.ts';

const MEBIBYTES = 96;
const FLOOD_MS = 800;
const BODY = 'x'.repeat(60_000);
const app = useApp();
const folder = useFolder();

const toRequest = (line: string, ...fields: readonly string[]): string =>
  `${[`${line} HTTP/1.1`, 'Host: a', ...fields].join('\r\n')}\r\n\r\n`;
const toPost = (target: string, ...fields: readonly string[]): string =>
  toRequest(`POST ${target}`, `Content-Length: ${BODY.length}`, ...fields) + BODY;

/** What is sent, and whether the responses are read. */
interface Flood {
  readonly first?: string | Buffer;
  readonly request: PipelinedFlood['request'];
  readonly reads: boolean;
}

/** Requests that are rejected, that wait for the slow target, that have bodies, and whose responses nobody reads. */
function toFloods(refused: string, slow: string, fields = ''): Readonly<Record<string, Flood>> {
  const more = fields === '' ? [] : [fields];
  const small = toRequest(`GET ${refused}`);
  return {
    'rejected requests': { request: small, reads: true },
    'requests behind a slow one': { first: toRequest(`GET ${slow}`, ...more), request: small, reads: true },
    'requests with bodies': { request: toPost(refused), reads: true },
    'requests with bodies behind a slow one': { first: toRequest(`GET ${slow}`, ...more), request: toPost(refused), reads: true },
    'requests whose responses nobody reads': { request: small, reads: false },
    // Each such head takes 200 KB of the heap where all of its fields are kept.
    'requests with many fields behind a slow one': {
      first: toRequest(`GET ${slow}`, ...more),
      request: toRequest(`GET ${refused}`, ...Array.from({ length: 2_300 }, (_, index) => `${index.toString(36)}:`)),
      reads: true,
    },
    'requests with an expectation': { request: toRequest(`GET ${refused}`, 'Expect: miracles'), reads: true },
    // Node keeps each chunk in a buffer of its own. The second request is rejected where others have used up the memory for waiting ones.
    'requests in tiny chunks behind a slow one': {
      first: toRequest(`GET ${slow}`, ...more) + toRequest(`POST ${refused}`, 'Transfer-Encoding: chunked'),
      request: '1\r\nx\r\n',
      reads: true,
    },
    'requests in tiny chunks behind a rejected one': {
      first: small + toRequest(`POST ${refused}`, 'Transfer-Encoding: chunked'),
      request: '1\r\nx\r\n',
      reads: true,
    },
    'requests in tiny chunks behind a response that closes the connection': {
      first: toRequest(`GET ${refused}`, 'Connection: close') + toRequest(`POST ${refused}`, 'Transfer-Encoding: chunked'),
      request: '1\r\nx\r\n',
      reads: true,
    },
    'requests behind a response that closes the connection': {
      first: toRequest(`POST ${refused}`, 'Content-Length: 9000000'),
      request: small,
      reads: true,
    },
  };
}

async function expectSurvival(
  gate: CgroupProcess,
  target: { readonly port: number; readonly isTls?: boolean },
  flood: Flood,
  honest: () => Promise<number>,
): Promise<void> {
  const statuses: number[] = [];
  // One connection was enough to end the process; many share what each of them may hold.
  for (const connections of [1, 64]) {
    const flooded = floodPipelined({ ...target, connections, milliseconds: FLOOD_MS, ...flood });
    statuses.push(await honest());
    await flooded;
  }
  // Everything runs in one process with half of the memory that it needs by the documentation, so it may ask senders to retry meanwhile.
  expect(statuses.filter((status) => status !== 200 && status !== 503)).toEqual([]);
  await expect.poll(honest, { timeout: 5_000 }).toBe(200);
  expect({ alive: gate.isAlive(), oomKills: gate.oomKills() }).toEqual({ alive: true, oomKills: 0 });
}

function toRoutes(): readonly unknown[] {
  const upstream = `http://127.0.0.1:${app.port}`;
  return [toRoute(app.port), { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' }];
}

function toSections(): Sections {
  return {
    routes: toRoutes(),
    authz: { address: '127.0.0.1:0' },
    proxy: {
      address: '127.0.0.1:0',
      requireTls: false,
      denyPrivate: false,
      basic: { realm: 'egress', users: { file: 'users' } },
      allow: [`127.0.0.1:${app.port}`],
    },
    provider: { address: '127.0.0.1:0', queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } } },
  };
}

const FILES = { users: makeEntry(PROXY_USER, PROXY_PASSWORD) };
const AUTH = PROXY_AUTH.trimEnd();
const PORTS = {
  'the data port': { key: 'port', toFloods: () => toFloods('/nope', '/open/slow') },
  'the admin port': { key: 'adminPort', toFloods: () => toFloods('/nope', '/metrics') },
  'the forward-auth port': { key: 'authzPort', toFloods: () => toFloods('/nope', '/nope') },
  'the proxy port': {
    key: 'proxyPort',
    toFloods: () => toFloods('http://127.0.0.1:1/nope', `http://127.0.0.1:${app.port}/slow`, AUTH),
  },
  "the provider's API": { key: 'providerPort', toFloods: () => toFloods('/v1/none', '/v1/events') },
} as const;
const FLOODS = Object.keys(toFloods('', ''));

describe.skipIf(NO_CGROUPS !== undefined)(`with ${MEBIBYTES} MiB, pipelined`, () => {
  let gate: CgroupGate;
  beforeAll(async () => {
    gate = await startGateInCgroup(MEBIBYTES, toSections(), FILES);
  });
  afterAll(() => gate.stop());
  // The app keeps `/slow` waiting until the flood is over.
  beforeEach(() => {
    app.handler = ({ url }, response) => {
      app.received.length = 0;
      if (url?.endsWith('/slow') !== true) response.end('handled');
    };
  });

  describe.each(Object.entries(PORTS))('at %s:', (_name, { key, toFloods: toPortFloods }) => {
    test.each(FLOODS)('%s', async (name) => {
      const listening = gate.log().find(({ msg }) => msg === 'listening');
      const flood = toPortFloods()[name] as Flood;
      await expectSurvival(gate, { port: Number(listening?.[key]) }, flood, () => sendDelivery(gate.port, makeDelivery()));
    });
  });
});

describe.skipIf(NO_CGROUPS !== undefined)(`with ${MEBIBYTES} MiB, streams over HTTP/2`, () => {
  let gate: CgroupGate;
  beforeAll(async () => {
    const pair = makeAuthority(folder, 'root').issue('server', 'DNS:localhost');
    const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
    const files = { 'tls.crt': readFileSync(pair.cert, 'utf8'), 'tls.key': readFileSync(pair.key, 'utf8') };
    gate = await startGateInCgroup(MEBIBYTES, { routes: toRoutes(), listen: { address: '127.0.0.1:0', tls } }, files);
  });
  afterAll(() => gate.stop());

  test.each([true, false])('are as few as one client may have; it reads: %s', async (reads) => {
    const toHeaders = (path: string): Buffer =>
      toBlock([
        [':method', 'GET'],
        [':scheme', 'https'],
        [':authority', 'localhost'],
        [':path', path],
      ]);
    const [refused, slow] = [toHeaders('/nope'), toHeaders('/open/slow')];
    const toStream = (index: number): Buffer =>
      toFrame(FRAME.headers, FLAG.endStream + FLAG.endHeaders, 2 * index + 1, index % 8 === 0 ? slow : refused);
    const flood = { first: PREFACE, request: toStream, reads };
    const target = { port: gate.port, isTls: true, alpn: 'h2' };
    await expectSurvival(gate, target, flood, () => sendDelivery(gate.port, makeDelivery(), true));
  });
});

describe.skipIf(NO_CGROUPS !== undefined)(`with ${MEBIBYTES} MiB, at the injector, pipelined`, () => {
  let injector: CgroupInjector;
  beforeAll(async () => {
    injector = await startInjectorInCgroup(MEBIBYTES);
  });
  afterAll(() => injector.stop());

  test.each(Object.entries(toFloods('/nope', '/inject')))('%s', async (_name, flood) => {
    await expectSurvival(injector, { port: injector.port, isTls: true }, flood, () => sendSmallReview(injector.port));
  });
});
