import { describe, expect, test } from 'vitest';
import {
  CERTIFICATES_BYTES,
  ChainCosts,
  findHelloState,
  HANDSHAKE_BYTES,
  toMaxHandshakes,
} from '../../../../src/http/server/tls-handshakes.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const MIB = 1024 * 1024;

/** A message of `length` bytes, in records of at most `size` bytes. */
function toRecords(length: number, size = 16_384, type = 1): Buffer {
  const message = Buffer.concat([Buffer.from([type, length >> 16, (length >> 8) & 255, length & 255]), Buffer.alloc(length)]);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    const record = message.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, record.length >> 8, record.length & 255]), record);
  }
  return Buffer.concat(records);
}

describe('a ClientHello', () => {
  const find = (bytes: Buffer): string => findHelloState(bytes, { at: 0, received: 0, head: [] });

  test.each([1, 2, 3, 5, 512, 16_384])('is complete with its last byte, in records of %i bytes', (size) => {
    const bytes = toRecords(517, size);
    for (const length of [0, 1, 4, 5, 6, 9, 100, bytes.length - 1])
      expect(find(bytes.subarray(0, length)), String(length)).toBe('incomplete');
    expect(find(bytes)).toBe('complete');
  });

  test('is found in pieces as in one, and reads each record once', () => {
    for (const size of [1, 2, 3, 5, 512]) {
      const bytes = toRecords(517, size);
      const scan = { at: 0, received: 0, head: [] };
      const isComplete = (length: number): boolean => findHelloState(bytes.subarray(0, length), scan) === 'complete';
      const lengths = Array.from({ length: bytes.length }, (_, index) => index + 1);
      expect(lengths.find(isComplete)).toBe(bytes.length);
      expect(scan.at).toBe(bytes.length - 5 - ((517 + 4) % size || size));
    }
  });

  test('is invalid with an empty record', () => {
    expect(find(Buffer.from([22, 3, 1, 0, 0]))).toBe('invalid');
    expect(find(Buffer.from([22, 3, 1, 0, 1, 1, 22, 3, 1, 0, 0]))).toBe('invalid');
  });

  test.each([
    [16_380, 'incomplete'],
    [16_381, 'too-large'],
    [130_900, 'too-large'],
    [0xff_ff_ff, 'too-large'],
  ])('of %i bytes is known by its first bytes: %s', (length, state) => {
    const start = Buffer.from([22, 3, 1, 64, 0, 1, length >> 16, (length >> 8) & 255, length & 255]);
    expect(find(start)).toBe(state);
  });

  test.each([
    ['HTTP', Buffer.from('GET / HTTP/1.1\r\n')],
    ['another record', Buffer.from([20, 3, 3, 0, 1, 1])],
    ['another message', toRecords(100_000, 16_384, 11)],
  ])('is left to OpenSSL if it is %s', (_name, bytes) => {
    expect(find(bytes)).toBe('complete');
  });
});

test.each([
  [undefined, 1, HANDSHAKE_BYTES, 1_024],
  [96, 1, HANDSHAKE_BYTES, 40],
  [192, 1, HANDSHAKE_BYTES, 136],
  [192, 1, CERTIFICATES_BYTES, 27],
  [256, 2, HANDSHAKE_BYTES, 84],
  [64, 1, CERTIFICATES_BYTES, 4],
])('with %s MiB and %i workers, each has handshakes of %i bytes: %i', (limit, workers, bytes, count) => {
  expect(toMaxHandshakes({ limit: limit === undefined ? undefined : limit * MIB, workers }, bytes)).toBe(count);
});

describe('a client with a chain of 31 KB', () => {
  const CHAIN = 31 * 1024;
  const open = (): { costs: ChainCosts; clock: FakeClock } => {
    const clock = new FakeClock();
    return { costs: new ChainCosts(clock), clock };
  };

  test('waits ten times as long as the check takes', async () => {
    const { costs, clock } = open();
    expect(costs.charge('10.0.0.1', CHAIN)).toBe(true);
    await clock.advance(1_149);
    expect(costs.isPaused('10.0.0.1')).toBe(true);
    await clock.advance(1);
    expect(costs.isPaused('10.0.0.1')).toBe(false);
  });

  test('waits at most a minute, however many it had at once', async () => {
    const { costs, clock } = open();
    for (let i = 0; i < 100; i++) costs.charge('10.0.0.1', CHAIN);
    await clock.advance(60_000);
    expect(costs.isPaused('10.0.0.1')).toBe(false);
  });

  test('delays no other client', () => {
    const { costs } = open();
    costs.charge('10.0.0.1', CHAIN);
    expect(costs.isPaused('10.0.0.2')).toBe(false);
  });
});

test('chains of 8 KiB cost nothing', () => {
  const costs = new ChainCosts(new FakeClock());
  expect([costs.charge('10.0.0.1', 8 * 1024), costs.isPaused('10.0.0.1')]).toEqual([false, false]);
});
