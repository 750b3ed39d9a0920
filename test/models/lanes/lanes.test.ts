import { describe, expect, test } from 'vitest';
import { findSoleCauses, runTlc, selectScopes } from '../tlc.ts';
import { CAUSES, DEFECTS, OVERLAPS, SCOPES, toCheck } from './checks.ts';

describe.concurrent('the lane protocol', () => {
  for (const scope of selectScopes(SCOPES))
    test(`keeps its promises in every state: ${scope.name}`, async () => {
      const { violated, states, trace, seconds } = await runTlc(toCheck(scope));
      console.log(`lanes, ${scope.name}: ${states} states in ${seconds.toFixed(1)} s`);
      expect({ violated, trace, states }).toEqual({ violated: undefined, trace: [], states: scope.states });
    });
});

describe.concurrent('controls of the lane protocol', () => {
  test('each listed cause alone leads to a double, and so does no other; the same for two attempts at once', async () => {
    const { reported } = await runTlc(toCheck({ maxFaults: 1, isReporting: true }));
    expect(findSoleCauses(reported, 'double')).toEqual(new Set(CAUSES));
    expect(findSoleCauses(reported, 'overlap')).toEqual(new Set(OVERLAPS));
  });

  for (const [defect, { violated: expected, ...scope }] of Object.entries(DEFECTS))
    test(`notices a defect: ${defect}`, async () => {
      const { violated } = await runTlc(toCheck(scope));
      expect(violated).toBe(expected);
    });
});
