import { describe, expect, test } from 'vitest';
import { TLS_CONNECTION_BYTES } from '../../../../src/http/server/limits.ts';
import { toKeptConnections } from '../../../../src/http/server/port-clients.ts';

const MIB = 1024 * 1024;

describe('the connections that a worker keeps while memory is tight', () => {
  test.each([
    [undefined, 1_024],
    [1_024, 1_024],
    [192, 544],
    [96, 160],
    [32, 64],
  ])('follow a container limit of %s MiB with TLS', (limit, kept) => {
    expect(toKeptConnections(true, { limit: limit === undefined ? undefined : limit * MIB, workers: 1 })).toBe(kept);
  });

  test.each([2, 3, 4])('are a part of those of the process if it has %i workers', (workers) => {
    const limit = 256 * MIB;
    expect(toKeptConnections(true, { limit: undefined, workers })).toBe(Math.ceil(1_024 / workers));
    expect(toKeptConnections(false, { limit, workers })).toBe(Math.ceil(1_024 / workers));
    const all = toKeptConnections(true, { limit, workers }) * workers;
    // Each worker after the first needs 32 MiB, and the process 56 MiB.
    const free = limit - 56 * MIB - (workers - 1) * 32 * MIB;
    expect(all * TLS_CONNECTION_BYTES).toBeLessThanOrEqual(free / 4 + workers * TLS_CONNECTION_BYTES);
    expect(all * TLS_CONNECTION_BYTES).toBeGreaterThan(free / 4 - TLS_CONNECTION_BYTES);
  });
});
