/**
 * Preloaded into a gate (`--import`): steps its wall clock, as NTP does after a long drift, while monotonic time goes on. On SIGUSR2 it reads
 * the offset in milliseconds from the file in CHAOS_CLOCK. All wall-clock time of a gate comes from `Date.now` (src/core/clock.ts, pino).
 */
import { readFileSync } from 'node:fs';

const file = process.env['CHAOS_CLOCK'];
if (file !== undefined) {
  const systemNow = Date.now;
  let offset = 0;
  Date.now = () => systemNow() + offset;
  process.on('SIGUSR2', () => {
    offset = Number(readFileSync(file, 'utf8'));
  });
}
