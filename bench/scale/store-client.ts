/** A process that claims and confirms events through the real store at a rate; prints as JSON how long each claim took, in microseconds. */
import { argv, stdin, stdout } from 'node:process';
import { handleTimed, newIds, openStore, toServer } from './store-load.ts';

const [port, perSecond, seconds] = argv.slice(2).map(Number) as [number, number, number];
const TICK_MS = 1;

const store = await openStore(toServer(port));
// The runner starts all processes at once.
stdout.write('ready\n');
await new Promise((resolve) => stdin.once('data', resolve));
const next = newIds();
const claimTimes: number[] = [];
const running = new Set<Promise<void>>();
const start = performance.now();
const toGap = (): number => (-Math.log(1 - Math.random()) * 1_000) / perSecond;
/** In microseconds: the simulation repeats them. */
const gaps: number[] = [];
let lastTick = start;
let due = start + toGap();
await new Promise<void>((resolve) => {
  const timer = setInterval(() => {
    const now = performance.now();
    if (now - start >= seconds * 1_000) {
      clearInterval(timer);
      resolve();
      return;
    }
    gaps.push(Math.round((now - lastTick) * 1_000));
    lastTick = now;
    for (; due <= now; due += toGap()) {
      const one = handleTimed(store, next(), claimTimes).finally(() => running.delete(one));
      running.add(one);
    }
  }, TICK_MS);
});
await Promise.all(running);
await store.close();
stdin.destroy();
const claims = claimTimes.map((ms) => Math.round(ms * 1_000));
stdout.write(`${JSON.stringify({ gaps, claims })}\n`);
