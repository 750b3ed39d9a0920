import { afterEach, beforeEach, describe, test } from 'vitest';
import { toMaxValues } from '../../src/kubernetes/admission/reviewer.ts';
import { useApp } from '../support/fixtures.ts';
import { toHead, toTinyChunks } from '../support/floods.ts';
import { ATTACKS, expectSurvival, toSections } from '../support/memory-attacks.ts';
import { type CgroupProcess, NO_CGROUPS, startGateInCgroup } from '../support/memory-cgroup.ts';
import {
  sendSmallReview,
  startInjectorInCgroup,
  toMountsReview,
  toNestedReview,
  toProbeReview,
  toReview,
} from '../support/memory-injector.ts';

const FLOOD_MS = 2_500;
/** Of the smallest container, and of the chart's injector. */
const LIMITS = [96, 256];
const REVIEW = { 'Content-Type': 'application/json' };
const LARGE_REVIEW = toReview(1_000_000);
/** Reviews whose parts would be copied many times, in a patch or in messages. */
const AMPLIFIED = {
  'long paths of probes': toProbeReview(1_400_000),
  'long names of containers': toMountsReview(200, 2_000_000),
};
const app = useApp();
let running: CgroupProcess | undefined;

beforeEach(() => {
  app.handler = (_request, response) => {
    app.received.length = 0;
    response.end('handled');
  };
});
afterEach(async () => {
  await running?.stop();
  running = undefined;
});

describe.skipIf(NO_CGROUPS !== undefined).each(LIMITS)('with %i MiB a gate handles small deliveries', (mebibytes) => {
  test.each(Object.entries(ATTACKS))('during a flood of %s', async (name, attack) => {
    const gate = await startGateInCgroup(mebibytes, toSections(app.port));
    running = gate;
    // One connection was enough to kill it; many only take each other's CPU time.
    const connections = name === 'chunks of one byte' ? 8 : 256;
    await expectSurvival(gate, { connections, milliseconds: FLOOD_MS, attack });
  });

  test('during a flood of forged bodies on 1,000 connections', async () => {
    const gate = await startGateInCgroup(mebibytes, toSections(app.port));
    running = gate;
    const attack = ATTACKS['forged bodies with a length'];
    await expectSurvival(gate, { connections: 1_000, milliseconds: FLOOD_MS, attack });
  });
});

test.skipIf(NO_CGROUPS !== undefined).each(LIMITS)('with %i MiB an injector survives floods of reviews', async (mebibytes) => {
  const injector = await startInjectorInCgroup(mebibytes);
  running = injector;
  const flood = { isTls: true, milliseconds: FLOOD_MS, honest: sendSmallReview };
  const chunks = function* (): Iterable<Buffer | string> {
    yield toHead('/inject', { ...REVIEW, 'Transfer-Encoding': 'chunked' });
    yield* toTinyChunks(3_000_000);
  };
  // As many values as are parsed with a heap of half the memory; and too many, in a review that is not too large.
  const most = toMaxValues((mebibytes * 1_048_576) / 2);
  const nested = [0.95 * most, Math.min(3 * most, 780_000)].map((values) => toReviews(toNestedReview(values)));
  await expectSurvival(injector, { ...flood, connections: 16, attack: chunks });
  await expectSurvival(injector, { ...flood, connections: 256, attack: toReviews(LARGE_REVIEW) });
  for (const attack of nested)
    for (const connections of [16, 256]) await expectSurvival(injector, { ...flood, connections, attack });
});

describe.skipIf(NO_CGROUPS !== undefined).each(LIMITS)('with %i MiB an injector survives floods of reviews', (mebibytes) => {
  test.each(Object.entries(AMPLIFIED))('with %s', async (_name, review) => {
    const injector = await startInjectorInCgroup(mebibytes);
    running = injector;
    const flood = { isTls: true, milliseconds: FLOOD_MS, honest: sendSmallReview, attack: toReviews(review) };
    for (const isReading of [true, false])
      for (const connections of [16, 256]) await expectSurvival(injector, { ...flood, isReading, connections });
  });
});

function toReviews(content: string): () => (string | Buffer)[] {
  const body = Buffer.from(content);
  return () => [toHead('/inject', { ...REVIEW, 'Content-Length': String(body.length) }), body];
}
