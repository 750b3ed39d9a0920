import { describe, expect, test } from 'vitest';
import { findSoleCauses, runTlc, selectScopes } from '../tlc.ts';
import { CAUSES, MUTATIONS, OVERLAPS, REPORTING, SCOPES, toCheck } from './checks.ts';

describe.concurrent('the claim protocol', () => {
  for (const scope of selectScopes(SCOPES))
    test(`keeps its promises in every state: ${scope.name}`, async () => {
      const { violated, states, trace, seconds } = await runTlc(toCheck(scope));
      console.log(`claims, ${scope.name}: ${states} states in ${seconds.toFixed(1)} s`);
      expect({ violated, trace, states }).toEqual({ violated: undefined, trace: [], states: scope.states });
    });
});

describe.concurrent('controls of the claim protocol', () => {
  test('each listed cause alone leads to a double, and so does no other; the same for overlaps', async () => {
    const results = await Promise.all(REPORTING.map((scope) => runTlc(toCheck({ ...scope, isReporting: true }))));
    const reported = results.flatMap((result) => result.reported);
    expect(findSoleCauses(reported, 'double')).toEqual(new Set(CAUSES));
    // An overrun comes after another fault.
    const overlaps = reported.filter(({ kind }) => kind === 'overlap').map(({ causes }) => causes.join(' and '));
    expect(overlaps).toContain('no response and overrun');
    expect(findSoleCauses(reported, 'overlap').add('overrun')).toEqual(new Set(OVERLAPS));
  });

  for (const [mutation, { violated: expected, ...scope }] of Object.entries(MUTATIONS))
    test(`notices a defect: ${mutation}`, async () => {
      const { violated } = await runTlc(toCheck({ ...scope, mutation }));
      expect(violated).toBe(expected);
    });
});
