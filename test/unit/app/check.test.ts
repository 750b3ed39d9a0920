import { describe, expect, test } from 'vitest';
import { findOversize } from '../../../src/app/check.ts';
import { toMaxFileBytes } from '../../../src/config/load/document.ts';
import { parseConfig } from '../../../src/config/load/load.ts';
import type { Config } from '../../../src/config/schema/config.ts';
import { systemClock } from '../../../src/core/clock.ts';
import { toMemoryBudget } from '../../../src/http/server/memory.ts';

const MIB = 1024 * 1024;

function parse(limits: string, maxBody: string, store = 'store: {}') {
  const text = `limits: { ${limits} }
${store}
routes:
  - name: a
    match: { path: /a }
    upstream: http://127.0.0.1:3000
    webhook: { maxBody: ${maxBody}, keys: [{ name: k, secret: { file: secret } }] }
`;
  const { config } = parseConfig('gate.yaml', text, systemClock);
  if (config === undefined) throw new Error('the config is not sound');
  return config;
}

describe('a warning is reported', () => {
  test('for more memory than the container has', () => {
    const config = parse('maxBufferedBytes: 100Mi', '1Mi');
    const [found, ...more] = findOversize(config, toMemoryBudget(config.limits, 96 * MIB));
    expect([found?.path, more]).toEqual([['limits', 'maxBufferedBytes'], []]);
    expect(found?.message).toBe(
      '100Mi of bodies do not fit into this container: its memory limit is 96Mi, and the process itself needs 56Mi',
    );
    expect(findOversize(config, toMemoryBudget(config.limits, 512 * MIB))).toEqual([]);
  });

  test('for more IDs in memory than the heap can hold, unless Redis holds them', () => {
    const config = parse('', '1Mi', 'store: { memory: { maxIds: 250000 } }');
    const findWith = (heap: number, from = config) => findOversize(from, toMemoryBudget({}, undefined), heap * MIB);
    expect(findWith(160)).toEqual([]);
    expect(findWith(102)).toEqual([
      {
        severity: 'warning',
        path: ['store', 'memory', 'maxIds'],
        message: '250000 IDs can use 76.3Mi, and the heap of this process has 102Mi',
        hint: 'omit it, so that it follows the heap, use Redis, or raise the memory limit',
      },
    ]);
    const store = 'store: { redis: { url: "redis://127.0.0.1:6379" }, memory: { maxIds: 250000 } }';
    expect(findWith(102, parse('', '1Mi', store))).toEqual([]);
  });

  test('for deliveries of an inbox and events that the memory cannot store, with the size that fits and the limit that they need', () => {
    const withAck = (maxBody: string, provider = '{}') => parse('', `${maxBody}, ack: onAccept`, `provider: ${provider}`);
    const find = (config: Config, mebibytes: number) =>
      findOversize(config, toMemoryBudget({ maxBufferedBytes: 64 * MIB }, mebibytes * MIB));
    expect(find(withAck('25Mi'), 192)).toEqual([
      {
        severity: 'warning',
        path: ['routes', 0, 'webhook', 'maxBody'],
        message:
          'the sending side has no memory to store or send 25Mi: with the memory limit of 192Mi, 24Mi fit; larger ones get 503 or are not sent, or many at once can get it killed',
        hint: 'lower it to 24Mi, or raise the memory limit to 195Mi',
      },
    ]);
    expect([find(withAck('24Mi'), 192), find(withAck('25Mi'), 195), find(parse('', '25Mi', 'provider: {}'), 192)]).toEqual([
      [],
      [],
      [],
    ]);
    expect(find(parse('', '1Mi', 'provider: { maxEventSize: 16Mi }'), 192).map(({ path, hint }) => [path, hint])).toEqual([
      [['provider', 'maxEventSize'], 'lower it to 12Mi, or raise the memory limit to 230Mi'],
    ]);
    expect(find(parse('', '1Mi', 'provider: { maxEventSize: 12Mi }'), 192)).toEqual([]);
    const deliver = parse(
      '',
      '1Mi',
      'provider: { roles: [deliver], maxEventSize: 40Mi, queue: { postgres: { url: { env: URL } } } }',
    );
    expect(find(deliver, 192).map(({ path, hint }) => [path, hint])).toEqual([
      [['provider', 'maxEventSize'], 'lower it to 10Mi, or raise the memory limit to 520Mi'],
    ]);
    const postgres = withAck('11Mi', '{ queue: { postgres: { url: { env: URL } } } }');
    expect(find(postgres, 192).map(({ hint }) => hint)).toEqual(['lower it to 10Mi, or raise the memory limit to 194Mi']);
  });

  test('for a container that is too small for sending', () => {
    const config = parse('', '1Mi', 'provider: {}');
    expect(findOversize(config, toMemoryBudget({}, 192 * MIB))).toEqual([]);
    expect(findOversize(config, toMemoryBudget({}, undefined))).toEqual([]);
    expect(findOversize(parse('', '1Mi'), toMemoryBudget({}, 128 * MIB))).toEqual([]);
    expect(findOversize(config, toMemoryBudget({}, 128 * MIB))).toEqual([
      {
        severity: 'warning',
        path: ['provider'],
        message:
          'sending webhooks needs 192Mi, and the memory limit of this container is 128Mi: many large events at once can get it killed',
        hint: 'raise the memory limit, or lower provider.maxEventSize',
      },
    ]);
  });

  test('for bodies that would never be accepted', () => {
    const config = parse('maxQueued: 1', '20Mi');
    const [found, ...more] = findOversize(config, toMemoryBudget(config.limits, 96 * MIB));
    expect([found?.path, more]).toEqual([['routes', 0, 'webhook', 'maxBody'], []]);
    expect(found?.message).toBe('a body of 20Mi is always rejected with 503, as limits.maxBufferedBytes is 10Mi here');
    expect(findOversize(config, toMemoryBudget(config.limits, undefined))).toEqual([]);
  });
});

describe('an error is reported', () => {
  const parseMany = (routes: number, endpoints: number) => {
    const { config } = parseConfig(
      'gate.yaml',
      JSON.stringify({
        routes: Array.from({ length: routes }, (_, i) => ({
          name: `r${i}`,
          match: { path: `/${i}` },
          upstream: 'http://127.0.0.1:3000',
          ...(i % 2 === 0 ? { allow: 'anyone' } : { webhook: { keys: [{ name: 'k', secret: { file: 'secret' } }] } }),
        })),
        provider: {
          endpoints: Array.from({ length: endpoints }, (_, i) => ({
            name: `e${i}`,
            url: 'https://a.example',
            secret: { file: 's' },
            tenant: 'a',
          })),
        },
      }),
      systemClock,
    );
    if (config === undefined) throw new Error('the config is not sound');
    return config;
  };
  const findWith = (heap: number, routes: number, endpoints: number) =>
    findOversize(parseMany(routes, endpoints), toMemoryBudget({}, undefined), heap * MIB).filter(
      ({ severity }) => severity === 'error',
    );

  test('for more routes than two configs in the heap may have', () => {
    expect(findWith(32, 156, 0)).toEqual([]);
    expect(findWith(32, 158, 0)).toEqual([
      {
        severity: 'error',
        path: ['routes'],
        message: '158 routes and 0 endpoints need 4Mi, and the heap of this process has 4Mi for a config',
        hint: 'raise the memory limit (docs/sizing.md), or distribute the routes over several deployments',
      },
    ]);
  });

  test('for more routes than the memory limit allows in two configs of each worker', () => {
    const findIn = (mebibytes: number, routes: number, workers: number) =>
      findOversize({ ...parseMany(routes, 0), workers }, toMemoryBudget({}, mebibytes * MIB), 144 * MIB).filter(
        ({ severity }) => severity === 'error',
      );
    expect([findIn(288, 384, 4), findIn(288, 1_000, 1), findIn(96, 38, 4)]).toEqual([[], [], []]);
    expect(findIn(288, 386, 4)).toEqual([
      {
        severity: 'error',
        path: ['routes'],
        message: '386 routes and 0 endpoints need 9.8Mi, and each of 4 workers has 9.8Mi for a config',
        hint: 'raise the memory limit or lower workers (docs/sizing.md), or distribute the routes over several deployments',
      },
    ]);
  });

  test('for more endpoints than two configs in the heap may have', () => {
    expect(findWith(32, 2, 400)).toEqual([]);
    expect(findWith(32, 2, 420)).toMatchObject([
      { severity: 'error', path: ['provider', 'endpoints'], hint: expect.stringContaining('create the endpoints with the API') },
    ]);
  });
});

test('the largest file follows the heap, so that it can be parsed beside a running config', () => {
  expect([20, 51, 99, 4_096].map((heap) => toMaxFileBytes(heap * MIB))).toEqual([0, 128_688, 357_469, 1_048_576]);
});
