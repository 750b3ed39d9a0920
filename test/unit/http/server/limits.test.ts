import { describe, expect, test } from 'vitest';
import type { Reason } from '../../../../src/core/refusal.ts';
import {
  type BodyInProgress,
  type BodyLimits,
  BodyWatch,
  type BufferedBody,
  type ListenLimit,
} from '../../../../src/http/server/limits.ts';
import { NO_PRESSURE } from '../../../../src/http/server/memory-guard.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const LIMITS: BodyLimits = {
  bodyIdleTimeout: 15_000,
  bodyMinRate: 500,
  bodyTimeout: 300_000,
  maxBufferedBytes: 1_000,
  maxLargeBodies: 2,
  streamMinRate: 10_240,
  streamTimeout: 3_600_000,
};

class Body implements BodyInProgress {
  readonly startedAt: number;
  lastByteAt: number;
  received = 0;
  isBuffered = true;
  isPaused = false;
  failed: Reason | undefined;

  constructor(now: number) {
    this.startedAt = now;
    this.lastByteAt = now;
  }

  fail(reason: Reason): void {
    this.failed = reason;
  }
}

function start() {
  const clock = new FakeClock();
  const hits: ListenLimit[] = [];
  const watch = new BodyWatch(LIMITS, clock, (limit) => void hits.push(limit), NO_PRESSURE);
  const body = new Body(watch.now());
  watch.add(body);
  /** `bytes` each second for `seconds`. */
  const drip = async (seconds: number, bytes: number): Promise<void> => {
    for (let i = 0; i < seconds; i++) {
      await clock.advance(1_000);
      if (body.failed !== undefined) return;
      body.received += bytes;
      body.lastByteAt = watch.now();
    }
  };
  return { clock, hits, watch, body, drip };
}

describe('a body', () => {
  test('may pause, but not for long', async () => {
    const { clock, hits, body } = start();
    await clock.advance(15_000);
    expect(body.failed).toBeUndefined();
    await clock.advance(1_000);
    expect([body.failed, hits]).toEqual(['body_timeout', ['body_idle']]);
  });

  test('that trickles is ended after the time to start', async () => {
    const { hits, body, drip } = start();
    await drip(14, 1);
    expect(body.failed).toBeUndefined();
    await drip(10, 1);
    expect([body.failed, hits]).toEqual(['body_timeout', ['body_rate']]);
  });

  test('that is slow but steady continues until the timeout', async () => {
    const { hits, body, drip } = start();
    await drip(299, 600);
    expect(body.failed).toBeUndefined();
    await drip(10, 600);
    expect([body.failed, hits]).toEqual(['body_timeout', ['body_total']]);
  });

  test('that is streamed must be faster after the timeout of a buffered body', async () => {
    const { hits, body, drip } = start();
    body.isBuffered = false;
    await drip(299, 600);
    expect(body.failed).toBeUndefined();
    await drip(2, 600);
    expect([body.failed, hits]).toEqual(['body_timeout', ['body_rate']]);
  });

  test('that is streamed at a good rate continues until its own timeout', async () => {
    const { hits, body, drip } = start();
    body.isBuffered = false;
    await drip(3_600, 10_300);
    expect(body.failed).toBeUndefined();
    await drip(2, 10_300);
    expect([body.failed, hits]).toEqual(['body_timeout', ['body_total']]);
  });

  test('is no longer checked once it is read', async () => {
    const { clock, watch, body } = start();
    watch.remove(body);
    await clock.advance(600_000);
    expect(body.failed).toBeUndefined();
  });
});

test('a request that waits takes memory only while there is enough for requests that need not wait', () => {
  const pressure = { ...NO_PRESSURE, shortage: undefined as 'memory' | undefined };
  const watch = new BodyWatch(LIMITS, new FakeClock(), () => undefined, pressure);
  const connection = makeWaiting('a');
  const release = watch.takeForWaiting(connection, 100);
  expect([watch.buffered, watch.takeForWaiting(connection, 100)]).toEqual([100, undefined]);
  release?.();
  expect(watch.buffered).toBe(0);
  pressure.shortage = 'memory';
  expect(watch.takeForWaiting(connection, 1)).toBeUndefined();
});

test('requests that wait for a turn have as much in addition, so that they end nothing that waits for another request', () => {
  const watch = new BodyWatch(LIMITS, new FakeClock(), () => undefined, NO_PRESSURE);
  const other = makeWaiting('a');
  const release = watch.takeForTurn(100);
  expect([typeof release, watch.takeForTurn(100), typeof watch.takeForWaiting(other, 100)]).toEqual([
    'function',
    undefined,
    'function',
  ]);
  release?.();
  expect([typeof watch.takeForTurn(100), other.evicted]).toEqual(['function', 0]);
});

test('connections on which much waits end for those of other clients, and not for more of their own', () => {
  const watch = new BodyWatch(LIMITS, new FakeClock(), () => undefined, NO_PRESSURE);
  const [heavy, own, other] = [makeWaiting('a'), makeWaiting('a'), makeWaiting('b')];
  for (const connection of [heavy, own]) {
    const release = watch.takeForWaiting(connection, 50);
    connection.onEvict = () => release?.();
  }
  expect([watch.takeForWaiting(own, 50), heavy.evicted, own.evicted]).toEqual([undefined, 0, 0]);
  expect([typeof watch.takeForWaiting(other, 50), heavy.evicted, own.evicted, watch.buffered]).toEqual(['function', 1, 0, 100]);
});

function makeWaiting(network: string) {
  return {
    network,
    startedAt: 0,
    held: 0,
    evicted: 0,
    onEvict: (): void => undefined,
    evict() {
      this.evicted++;
      this.onEvict();
    },
  };
}

describe('large bodies that wait', () => {
  const KIB = 1_024;
  class Upload extends Body implements BufferedBody {
    held = 0;
    state = 'small' as const;
    listIndex: number | undefined;
    readonly network: string;
    readonly route: string;

    constructor(network: string, route: string) {
      super(0);
      this.network = network;
      this.route = route;
    }
  }
  const fill = (count: number) => {
    const watch = new BodyWatch({ ...LIMITS, maxBufferedBytes: 1_000 * KIB }, new FakeClock(), () => undefined, NO_PRESSURE);
    const granted: Upload[] = [];
    const enter = (network: string, route: string): [Upload, boolean] => {
      const upload = new Upload(network, route);
      watch.addBuffered(upload);
      return [upload, watch.takeOrWait(upload, 100 * KIB, () => void granted.push(upload))];
    };
    const first = Array.from({ length: count }, (_, i) => enter(`192.0.2.${i}`, 'a')[0]);
    return { watch, granted, enter, first };
  };

  test('do not block those of another route, whose share is free', () => {
    const { granted, enter, watch, first } = fill(10);
    for (const upload of first) if (granted.includes(upload)) watch.finish(upload, 100 * KIB);
    while (granted.length < 5) for (const upload of [...granted]) watch.finish(upload, 100 * KIB);
    const before = granted.length;
    const [other] = enter('192.0.2.99', 'b');
    expect(granted.at(-1)).toBe(other);
    expect(granted.length).toBe(before + 1);
    watch.close();
  });

  test('are not evicted for their route while a client holds most of the memory on other routes', () => {
    const { watch } = fill(0);
    const hold = (network: string, route: string, bytes: number): [Upload, boolean] => {
      const upload = new Upload(network, route);
      watch.addBuffered(upload);
      return [upload, watch.take(upload, bytes)];
    };
    const attack = Array.from({ length: 15 }, (_, i) => hold('192.0.2.1', `b${i % 3}`, 60 * KIB)[0]);
    const [first] = hold('192.0.2.2', 'a', 30 * KIB);
    for (const upload of attack)
      upload.fail = (reason) => {
        upload.failed = reason;
        watch.finish(upload, 0);
      };
    expect(hold('192.0.2.3', 'a', 60 * KIB)[1]).toBe(true);
    expect([first.failed, attack[0]?.failed]).toEqual([undefined, 'buffer_full']);
    watch.close();
  });

  test('lose the latest of their route if they fill the queue, however many clients send them', () => {
    const { enter, watch, first } = fill(10);
    expect(enter('192.0.2.98', 'a')[1]).toBe(false);
    expect(enter('192.0.2.99', 'b')[1]).toBe(true);
    expect(first.filter(({ failed }) => failed !== undefined)).toHaveLength(1);
    watch.close();
  });
});

test('no timer is left after close', () => {
  const { clock, watch } = start();
  watch.close();
  expect(clock.timers).toBe(0);
});
