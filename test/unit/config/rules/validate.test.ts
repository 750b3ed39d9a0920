import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import { formatProblem } from '../../../../src/core/problem.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import type { Sections } from '../../../support/gate.ts';

const BASIC = {
  name: 'a',
  match: { path: '/a' },
  upstream: 'http://127.0.0.1:3000',
  basic: { realm: 'a', users: { file: 'u' } },
};
const WEBHOOK = {
  name: 'b',
  match: { path: '/b' },
  upstream: 'http://127.0.0.1:3000',
  webhook: { keys: [{ name: 'k', secret: { env: 'K' } }] },
};

function checkAuthz(authz: object | undefined, routes: readonly object[] = [BASIC]): string[] {
  const { problems } = parseConfig('f', stringify({ authz, routes }), new FakeClock());
  return problems.map(({ severity, path, message }) => `${severity} ${path}: ${message}`);
}

test.each([
  ['beside the proxy', { address: '127.0.0.1:9091' }],
  ['beside the proxy, by IPv6', { address: '[::1]:9091' }],
  [
    'on another machine, by TLS',
    { address: '0.0.0.0:9091', tls: { certFile: 'c', keyFile: 'k' }, trustedCallers: ['10.0.0.0/8'] },
  ],
])('accepts an endpoint %s, and routes that require TLS there', (_, authz) => {
  expect(checkAuthz(authz)).toEqual([]);
});

test('reports that no request can use TLS if there is no endpoint either', () => {
  expect(checkAuthz(undefined)).toEqual([
    'error routes.0.basic.requireTls: no request can arrive over TLS, so every request would be rejected',
  ]);
});

test.each([
  [
    'error authz.address: another listener of sidegate uses this port',
    { address: '127.0.0.1:9090', trustedCallers: ['127.0.0.1'] },
    [BASIC],
  ],
  [
    'warning authz.address: passwords may cross the network in clear text between the proxy and this port',
    { address: '0.0.0.0:9091' },
    [BASIC],
  ],
  [
    'warning authz.trustedCallers.0: this range allows every caller, so anyone can guess passwords and claim any client address',
    { address: '127.0.0.1:9091', trustedCallers: ['0.0.0.0/0'] },
    [BASIC],
  ],
  [
    'warning authz: every route verifies request bodies or client certificates, which this endpoint never receives',
    { address: '127.0.0.1:9091' },
    [WEBHOOK],
  ],
  [
    'error authz.trustedCallers: the list is empty, so every auth request would be rejected',
    { address: '127.0.0.1:9091', trustedCallers: [] },
    [BASIC],
  ],
])('reports about the endpoint of auth requests: %s', (problem, authz, routes) => {
  expect(checkAuthz(authz, routes)).toEqual([problem]);
});

test('reports an endpoint of auth requests for routes with client certificates only', () => {
  const messages = checkAuthz({ address: '127.0.0.1:9091' }, [{ ...BASIC, clientCertificate: {} }]);
  expect(messages.filter((each) => each.startsWith('warning authz'))).toEqual([
    'warning authz: every route verifies request bodies or client certificates, which this endpoint never receives',
  ]);
});

const KEYED = { keys: [{ name: 'current', secret: { env: 'SECRET' } }] };
const ROUTE = { name: 'app', match: { path: '/' }, upstream: 'http://127.0.0.1:3000' };
const STORE = { redis: { url: 'redis://127.0.0.1:6379' } };

const checkWorkers = (sections: Sections, webhook: Sections = {}): string[] => {
  const routes = [{ ...ROUTE, webhook: { ...KEYED, ...webhook } }];
  const { problems } = parseConfig('f', stringify({ routes, ...sections }), new FakeClock());
  return problems.map(formatProblem).filter((problem) => problem.includes('worker'));
};

test('several workers require Redis, and the error says why and how', () => {
  expect(checkWorkers({ workers: 2 })).toEqual([
    'f:11:10: error workers: without Redis each worker would remember only its own events, so that the app would get duplicates, and bans would not apply to all connections\n  hint: set store.redis, for example redis: { url: redis://127.0.0.1:6379 }, or remove workers',
  ]);
  expect(checkWorkers({ workers: 2, store: STORE })).toEqual([]);
  expect(checkWorkers({ workers: 1 })).toEqual([]);
});

test.each([
  [{ maxInFlight: 3 }, ['limits.maxInFlight: 3 cannot be divided among 4 workers']],
  [{ maxInFlight: 4, maxQueued: 0 }, []],
  [{ maxQueued: 2, passwordThreads: 1 }, ['limits.maxQueued: 2 cannot', 'limits.passwordThreads: 1 cannot']],
])('each of 4 workers must get a part of a limit: %o', (limits, expected) => {
  const found = checkWorkers({ workers: 4, store: STORE, limits });
  expect(found).toHaveLength(expected.length);
  for (const [index, text] of expected.entries()) expect(found[index]).toContain(text);
});

test('what only one worker can do is an error', () => {
  const sections = { workers: 2, store: STORE, provider: {} };
  expect(checkWorkers(sections, { ack: 'onAccept' })).toEqual([
    expect.stringContaining('routes.0.webhook.ack: only the first worker has the queue of provider'),
  ]);
  expect(checkWorkers(sections, { storeBody: { redact: [] } })).toEqual([
    expect.stringContaining('routes.0.webhook.storeBody: bodies are not stored with more than one worker'),
  ]);
});

test('workers without a port to share are a warning', () => {
  expect(checkWorkers({ workers: 2, store: STORE, provider: {}, routes: [] })).toEqual([
    expect.stringContaining('warning workers: only the first worker runs provider'),
  ]);
});

test.each([[0], [65], [1.5], ['two']])('workers: %s is rejected', (workers) => {
  expect(checkWorkers({ workers, store: STORE })).toHaveLength(1);
});

test('a process that only delivers ignores workers', () => {
  const text = stringify({
    workers: 2,
    provider: { queue: { postgres: { url: { env: 'QUEUE_URL' } } } },
    routes: [ROUTE],
    store: STORE,
  });
  const { config } = parseConfig('f', text, new FakeClock(), { overrides: { isDeliverOnly: true } });
  expect(config?.workers).toBe(1);
});

const AT = 'routes.0.webhook.storeBody';

function load(storeBody: unknown, journal: object = {}) {
  const webhook = { keys: [{ name: 'k', secret: { env: 'K' } }], storeBody };
  const route = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', webhook };
  return parseConfig('f', stringify({ journal, routes: [route] }), new FakeClock());
}

const checkStoreBody = (storeBody: unknown, journal?: object): string[] =>
  load(storeBody, journal).problems.map(({ severity, path, message }) => `${severity} ${path}: ${message}`);

test('stores 8 KiB for an hour if nothing else is set', () => {
  const { config, problems } = load({ redact: ['$.a', '$.b[*].c'] });
  expect(problems).toEqual([]);
  expect(config?.routes[0]?.webhook?.storeBody).toEqual({
    maxBytes: 8_192,
    retention: 3_600_000,
    redact: [
      { text: '$.a', steps: ['a'] },
      { text: '$.b[*].c', steps: ['b', null, 'c'] },
    ],
  });
  expect(load(undefined).config?.routes[0]?.webhook?.storeBody).toBeUndefined();
  expect(config?.journal.maxBodyBytes).toBe(4_194_304);
});

test('accepts bodies without redaction only if the config says so', () => {
  expect(checkStoreBody({ redact: [], maxBytes: '64Ki', retention: '1d' })).toEqual([]);
  expect(checkStoreBody({})).toEqual([
    `error ${AT}.redact: missing: expected the list of JSON paths whose values must not be stored; [] stores bodies as they are`,
  ]);
});

test.each<[object, object, string]>([
  [{ redact: ['card'] }, {}, `${AT}.redact.0: "card" is not a path: a path begins with $; write for example $.card.number`],
  [{ redact: ['$..card'] }, {}, `${AT}.redact.0: "$..card" is not a path: cannot parse "..card"`],
  [{ redact: '$.card' }, {}, `${AT}.redact: expected the list of JSON paths whose values must not be stored`],
  [{ redact: Array(33).fill('$.a') }, {}, `${AT}.redact: expected at most 32 paths`],
  [{ redact: [], maxbytes: 1 }, {}, `${AT}.maxbytes: unknown key "maxbytes"`],
  [{ redact: [], maxBytes: '65Ki' }, {}, `${AT}.maxBytes: a stored body has 1 byte to 64Ki`],
  [{ redact: [], maxBytes: 0 }, {}, `${AT}.maxBytes: a stored body has 1 byte to 64Ki`],
  [
    { redact: [], maxBytes: '8Ki' },
    { maxBodyBytes: '8Ki' },
    `${AT}.maxBytes: such a body does not fit into journal.maxBodyBytes`,
  ],
  [{ redact: [], retention: '25h' }, {}, `${AT}.retention: a body is stored for 1ms to 1d`],
  [{ redact: [], retention: '0s' }, {}, `${AT}.retention: a body is stored for 1ms to 1d`],
  [{ redact: [] }, { size: 0 }, `${AT}: bodies are stored in the journal, which is disabled`],
])('rejects storeBody: %j', (storeBody, journal, problem) => {
  expect(checkStoreBody(storeBody, journal)).toEqual([expect.stringContaining(`error ${problem}`)]);
});

const ROUTES = [{ name: 'app', match: { path: '/' }, upstream: 'http://127.0.0.1:3000', open: true }];

test.each([
  ['0ms', []],
  ['10s', []],
  ['11s', ['f:2:10: error log.flush: lines of the log may wait for 10s at most\n  hint: flush: 250ms']],
])('log.flush: %s', (flush, expected) => {
  const { problems } = parseConfig('f', stringify({ log: { flush }, routes: ROUTES }), new FakeClock());
  expect(problems.map(formatProblem).filter((problem) => problem.includes('log'))).toEqual(expected);
});
