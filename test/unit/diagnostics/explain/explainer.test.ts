/** The queue of analyses: who is taken, when, and at what cost to the rest. */
import { createHmac } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { type Reason, type Refusal, refuse } from '../../../../src/core/refusal.ts';
import type { ParsedHead } from '../../../../src/core/request.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { type AnalysisContext, Explainer } from '../../../../src/diagnostics/explain/explainer.ts';
import { findPreset, PRESETS } from '../../../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';

// It is loaded on demand, and the tests count the steps after that.
beforeAll(() => import('../../../../src/diagnostics/explain/background.ts'));

const SECRET = 'a secret of sixteen and more';
const scheme = compileScheme(findPreset('github') as SchemeDescription);

function toContext(): AnalysisContext {
  const secret = new Secret(Buffer.from(SECRET));
  const parsed = scheme.parseKey('current', secret, undefined);
  if (!('key' in parsed)) throw new Error(parsed.problem);
  const keys = [{ route: 'a', name: 'current', secret, encoding: undefined, key: parsed.key }];
  return {
    scheme,
    allowDotInId: false,
    tolerance: undefined,
    publicUrl: '',
    keys,
    others: [],
    presets: PRESETS,
    compile: compileScheme,
  };
}

function toExchange(
  requestId: string,
  content: Buffer | Refusal | undefined = Buffer.from('{"a":1}\n'),
  address = '203.0.113.9',
): ParsedHead {
  const signature = `sha256=${createHmac('sha256', SECRET).update('{"a":1}').digest('hex')}`;
  return {
    requestId,
    client: { address },
    method: 'POST',
    target: { raw: '/hooks' },
    headers: new HeaderFields(['X-Hub-Signature-256', signature]),
    receivedAt: 0,
    body: {
      content,
      read: () => {
        throw new Error('a content that nobody asked for is not read');
      },
    },
  } as unknown as ParsedHead;
}

const BROKEN = refuse('malformed_request', 'body_aborted');
const BAD = refuse('signature_mismatch', 'bad_signature');

/** With pauses that the test ends one by one, where it wants. */
function start(options: { find?: (route: string) => AnalysisContext | undefined; isHeld?: boolean; cost?: number } = {}) {
  const clock = new FakeClock();
  const explained: string[] = [];
  const skipped: string[] = [];
  const failed: unknown[] = [];
  const held: (() => void)[] = [];
  let isHeld = options.isHeld === true;
  const explainer = new Explainer(
    { perMinute: 10, maxBody: 64, cpuShare: 0.05, cpuSharePerClient: 0.02 },
    {
      clock,
      pause: () => (isHeld ? new Promise((resolve) => held.push(resolve)) : Promise.resolve()),
      find(route) {
        clock.pass(options.cost ?? 0);
        return (options.find ?? toContext)(route);
      },
      onExplained: ({ requestId, findings }) => explained.push(`${requestId} ${findings.map(({ cause }) => cause)}`),
      onSkipped: (route) => skipped.push(route),
      onFailed: (_requestId, error) => failed.push(error),
    },
  );
  const release = async (): Promise<void> => {
    isHeld = false;
    for (const resolve of held.splice(0)) resolve();
    await explainer.idle();
  };
  return { clock, explainer, explained, skipped, failed, held, release };
}

describe('a rejected signature', () => {
  test('is explained after the caller continued, and each step yields to other work', async () => {
    const { explainer, explained, held, release } = start({ isHeld: true });
    explainer.offer('a', toExchange('r1'), BAD);
    expect(explained).toEqual([]);
    await settle();
    expect([explained.length, held.length]).toEqual([0, 1]);
    held.pop()?.();
    await settle();
    expect([explained.length, held.length]).toEqual([0, 1]);
    await release();
    expect(explained).toEqual(['r1 body_whitespace']);
  });

  test('waits for those before it: one is analysed at a time', async () => {
    const { explainer, explained, held, release } = start({ isHeld: true });
    for (const id of ['r1', 'r2', 'r3']) explainer.offer('a', toExchange(id), BAD);
    await settle();
    expect(held).toHaveLength(1);
    await release();
    expect(explained.map((line) => line.slice(0, 2))).toEqual(['r1', 'r2', 'r3']);
  });

  test('is skipped and counted if 32 are waiting, in addition to the current one', async () => {
    const { explainer, explained, skipped, release } = start({ isHeld: true });
    for (let i = 0; i < 40; i++) explainer.offer(`route-${i}`, toExchange(`r${i}`, undefined, `203.0.113.${i}`), BAD);
    expect(skipped).toHaveLength(7);
    await release();
    expect(explained).toHaveLength(33);
  });

  test('is skipped if eight of its client are waiting, without an effect on other clients', async () => {
    const { explainer, explained, skipped, release } = start({ isHeld: true });
    for (let i = 0; i < 20; i++) explainer.offer(`route-${i}`, toExchange(`r${i}`), BAD);
    expect(skipped).toHaveLength(11);
    explainer.offer('a', toExchange('other', undefined, '203.0.113.10'), BAD);
    await release();
    expect(explained).toHaveLength(10);
    expect(explained.at(-1)).toMatch(/^other /);
  });

  test('is skipped while its client has used up its share of the CPU, without an effect on other clients', async () => {
    const { clock, explainer, explained, skipped } = start({ cost: 300 });
    const offer = async (requestId: string, address: string): Promise<void> => {
      explainer.offer('a', toExchange(requestId, undefined, address), BAD);
      await settle();
      // At 5 % of a core, 300 ms are paid for within 6 s.
      await clock.advance(6_000);
      await explainer.idle();
    };
    await offer('r1', '2001:db8::1');
    await offer('r2', '2001:db8::1');
    await offer('r3', '2001:db8::2');
    expect([explained.length, skipped]).toEqual([2, ['a']]);
    await offer('r4', '2001:db8:0:1::1');
    expect(explained.length).toBe(3);
  });

  test('waits until the CPU share of all analyses covers those before it', async () => {
    const { clock, explainer, explained } = start({ cost: 300 });
    explainer.offer('a', toExchange('r1'), BAD);
    await settle();
    await clock.advance(5_700);
    expect(explained).toEqual([]);
    await clock.advance(200);
    await explainer.idle();
    expect(explained).toHaveLength(1);
  });

  test('is skipped if its route had ten in this minute, without an effect on other routes', async () => {
    const { clock, explainer, explained, skipped } = start();
    const offer = async (route: string, count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        explainer.offer(route, toExchange(`${route}${i}`), BAD);
        await explainer.idle();
      }
    };
    await offer('a', 12);
    await offer('b', 1);
    expect([explained.length, skipped]).toEqual([11, ['a', 'a']]);
    await clock.advance(6_000);
    await offer('a', 2);
    expect([explained.length, skipped.length]).toEqual([12, 3]);
    await clock.advance(600_000);
    await offer('a', 11);
    expect([explained.length, skipped.length]).toEqual([22, 4]);
  });

  test('is analysed by its head if its body was not read, or is larger than the limit', async () => {
    const { explainer, explained } = start();
    explainer.offer('a', toExchange('head', BROKEN), BAD);
    await explainer.idle();
    explainer.offer('a', toExchange('large', Buffer.alloc(65)), BAD);
    await explainer.idle();
    expect(explained).toEqual(['head unknown', 'large unknown']);
  });
});

test.each<Reason>(['bad_signature', 'malformed_signature', 'missing_signature', 'timestamp_old', 'timestamp_future'])(
  'a refusal for %s is looked into',
  async (reason) => {
    const { explainer, explained } = start();
    explainer.offer('a', toExchange('r'), refuse('signature_mismatch', reason));
    await explainer.idle();
    expect(explained).toHaveLength(1);
  },
);

test.each<Reason>(['duplicate', 'bad_credentials', 'queue_full', 'upstream_connect', 'secret_unavailable'])(
  'nothing is done, nor counted, for %s',
  async (reason) => {
    const { explainer, explained, skipped } = start();
    explainer.offer('a', toExchange('r'), refuse('in_progress', reason));
    await explainer.idle();
    expect([explained, skipped]).toEqual([[], []]);
  },
);

test('a rejection whose route was removed by a reload is counted as skipped', async () => {
  const { explainer, skipped } = start({ find: () => undefined });
  explainer.offer('gone', toExchange('r'), BAD);
  await explainer.idle();
  expect(skipped).toEqual(['gone']);
});

test('an analysis that fails is reported, and the next one runs', async () => {
  let isBroken = true;
  const { explainer, explained, failed } = start({
    find: () => {
      if (!isBroken) return toContext();
      isBroken = false;
      throw new Error('broken');
    },
  });
  explainer.offer('a', toExchange('r1'), BAD);
  explainer.offer('a', toExchange('r2'), BAD);
  await explainer.idle();
  expect(failed).toHaveLength(1);
  expect(explained).toEqual(['r2 body_whitespace']);
});
