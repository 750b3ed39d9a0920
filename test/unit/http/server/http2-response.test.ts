import { beforeEach, describe, expect, test } from 'vitest';
import { CountedStream, RejectedStreams } from '../../../../src/http/server/http2-response.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const BURST = 1_000;
const MAX_CLIENTS = 1_024;

let clock: FakeClock;
let rejected: RejectedStreams;
beforeEach(() => {
  clock = new FakeClock();
  rejected = new RejectedStreams(clock);
});

/** Rejects streams until the client has used up its budget; returns how many it had. */
function useUp(client: string, fields = 0): number {
  for (let count = 0; ; count++) if (!rejected.take(client, 1, fields)) return count;
}

describe('the rejected streams of a client', () => {
  test('are as many as the budget, and 500 per second after that', async () => {
    expect(useUp('a')).toBe(BURST);
    expect(rejected.isSpent('a')).toBe(true);
    await clock.advance(1_000);
    expect(rejected.isSpent('a')).toBe(false);
    expect(useUp('a')).toBe(500);
    await clock.advance(60_000);
    expect(useUp('a')).toBe(BURST);
  });

  test('are fewer with many fields', () => {
    expect(useUp('a', 100)).toBe(BURST / 2);
  });

  test('do not count for others', () => {
    useUp('a');
    expect(rejected.isSpent('b')).toBe(false);
    expect(useUp('b')).toBe(BURST);
  });

  test('are remembered for the clients that had one last', () => {
    useUp('first');
    useUp('second');
    rejected.take('first', 1, 0);
    for (let i = 0; i < MAX_CLIENTS - 1; i++) rejected.take(`other ${i}`, 1, 0);
    expect([rejected.isSpent('first'), rejected.isSpent('second')]).toEqual([true, false]);
  });
});

describe('a stream', () => {
  const taken: [number, number][] = [];
  const create = (): CountedStream => new CountedStream(4, (streams, fields) => void taken.push([streams, fields]));
  beforeEach(() => void taken.splice(0));

  test('counts once, with its fields and the trailers so far', () => {
    const stream = create();
    stream.addFields(3);
    expect(taken).toEqual([]);
    stream.reject();
    stream.reject();
    expect(taken).toEqual([[1, 7]]);
  });

  test('counts its trailers if they arrive after it was rejected', () => {
    const stream = create();
    stream.reject();
    stream.addFields(190);
    expect(taken).toEqual([
      [1, 4],
      [0, 190],
    ]);
  });
});
