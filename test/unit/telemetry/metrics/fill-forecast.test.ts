import { describe, expect, test } from 'vitest';
import { FillForecast } from '../../../../src/telemetry/metrics/fill-forecast.ts';

describe('the forecast of a full queue', () => {
  const bounds = { maxEvents: 1_000, maxBytes: 10_000 };

  test('is infinity for the first minute, without growth, and while the queue empties', () => {
    const forecast = new FillForecast();
    expect(forecast.add({ events: 0, bytes: 0, ...bounds }, 0)).toBe(Number.POSITIVE_INFINITY);
    expect(forecast.add({ events: 500, bytes: 500, ...bounds }, 50_000)).toBe(Number.POSITIVE_INFINITY);
    const idle = new FillForecast();
    idle.add({ events: 500, bytes: 500, ...bounds }, 0);
    expect(idle.add({ events: 500, bytes: 500, ...bounds }, 60_000)).toBe(Number.POSITIVE_INFINITY);
    expect(idle.add({ events: 400, bytes: 400, ...bounds }, 120_000)).toBe(Number.POSITIVE_INFINITY);
  });

  test('is that of the bound that is reached first, and 0 at a bound', () => {
    const forecast = new FillForecast();
    forecast.add({ events: 0, bytes: 0, ...bounds }, 0);
    // 1 event and 5 bytes a second: 900 s and 1,900 s.
    expect(forecast.add({ events: 100, bytes: 500, ...bounds }, 100_000)).toBe(900);
    // 50 bytes a second: 100 s.
    expect(forecast.add({ events: 100, bytes: 5_000, ...bounds }, 100_000)).toBe(100);
    expect(forecast.add({ events: 1_000, bytes: 5_000, ...bounds }, 110_000)).toBe(0);
  });

  test('sees that the queue grows again after a purge', () => {
    const forecast = new FillForecast();
    const at = (seconds: number, events: number): number => forecast.add({ events, bytes: 0, ...bounds }, seconds * 1_000);
    at(0, 500);
    at(60, 500);
    at(70, 0);
    expect(at(100, 30)).toBe(Number.POSITIVE_INFINITY);
    expect(at(170, 100)).toBe(900);
  });

  test('follows the growth of the last ten minutes', () => {
    const forecast = new FillForecast();
    const at = (seconds: number, events: number): number => forecast.add({ events, bytes: 0, ...bounds }, seconds * 1_000);
    for (let seconds = 0; seconds <= 600; seconds += 10) at(seconds, 0);
    expect(at(1_200, 600)).toBe(400);
    for (let seconds = 1_210; seconds < 1_800; seconds += 10) at(seconds, 600);
    expect(at(1_810, 600)).toBe(Number.POSITIVE_INFINITY);
  });
});
