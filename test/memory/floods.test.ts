import { afterEach, beforeAll, beforeEach, describe, test } from 'vitest';
import { useApp } from '../support/fixtures.ts';
import { toHead, toTinyChunks } from '../support/floods.ts';
import { ATTACKS, expectSurvival, toSections } from '../support/memory-attacks.ts';
import { type CgroupProcess, NO_CGROUPS, provideBundle, startGateInCgroup } from '../support/memory-cgroup.ts';
import { sendSmallReview, startInjectorInCgroup, toReview } from '../support/memory-injector.ts';

const FLOOD_MS = 2_500;
const LIMITS = [96, 128, 192, 256];
const REVIEW = { 'Content-Type': 'application/json' };
const LARGE_REVIEW = toReview(1_000_000);
const app = useApp();
let running: CgroupProcess | undefined;

beforeAll(() => provideBundle());
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
  const reviews = (): string[] => [toHead('/inject', { ...REVIEW, 'Content-Length': String(LARGE_REVIEW.length) }), LARGE_REVIEW];
  await expectSurvival(injector, { ...flood, connections: 16, attack: chunks });
  await expectSurvival(injector, { ...flood, connections: 256, attack: reviews });
});
