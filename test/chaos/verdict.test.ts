/** The verdict of a chaos run can fail: it finds each way in which a run without faults is made bad. */
import { describe, expect, test } from 'vitest';
import { type ChaosResult, runChaos } from './run-chaos.ts';
import { startStandaloneStore } from './stores.ts';
import { judge } from './verdict.ts';

const SEED = 17;
const EVENTS = 600;

describe('a run without dedup', () => {
  test('is bad: events that are sent twice at once are handled twice', async () => {
    const run = await runChaos({ seed: SEED, events: EVENTS, store: undefined, isFaulty: false, gatesWithoutDedup: [0, 1] });
    const { problems } = judge(run);
    expect(problems).toContainEqual(expect.stringMatching(/^handled twice without a cause: direct-/));
    expect(problems).not.toContainEqual(expect.stringMatching(/^(lost|forged)/));
  });
});

describe('a run with faults', () => {
  test('is bad if one of two gates does not claim events: faults do not explain what it forwards twice', async () => {
    const store = await startStandaloneStore();
    const run = await runChaos({ seed: SEED, events: 2 * EVENTS, store, isFaulty: true, gatesWithoutDedup: [1] });
    const { problems, doubles } = judge(run);
    expect(problems).toContainEqual(expect.stringMatching(/^handled twice without a cause: direct-/));
    expect(run.faults.length).toBeGreaterThan(15);
    // Those of the faults are still explained.
    expect(doubles).toContainEqual(expect.objectContaining({ cause: expect.any(String) }));
  });
});

describe('a run without faults', () => {
  test('is good, and is bad once its ledger is changed', async () => {
    const run = await runChaos({ seed: SEED, events: EVENTS, store: await startStandaloneStore(), isFaulty: false });
    const toProblems = (over: Partial<ChaosResult>): readonly string[] => judge({ ...run, ...over }).problems;
    const { ledger } = run;
    const [first] = ledger;
    if (first === undefined) throw new Error('nothing was handled');
    expect(judge(run)).toMatchObject({ problems: [], handled: EVENTS });

    const lost = toProblems({ ledger: ledger.slice(1) });
    expect(lost).toContainEqual(expect.stringContaining(`lost: ${first.id} was acknowledged, but never handled`));
    expect(lost).toContainEqual(
      expect.stringContaining(`request ${first.requestId} got 200 from the app, but the ledger does not`),
    );

    const isMissing = expect.stringMatching(/admitted, 0 failed, 0 late, but the app got \d+$/);
    expect(lost).toContainEqual(isMissing);
    const request = run.logs.requests.get(first.requestId);
    if (request === undefined) throw new Error('the request is not in the log');
    const requests = new Map(run.logs.requests).set(first.requestId, { ...request, status: 503, reason: 'lease_expired' });
    const late = toProblems({ ledger: ledger.slice(1), logs: { ...run.logs, requests } });
    expect(late.filter((problem) => problem.includes('admitted'))).toEqual([]);

    const again = { ...first, at: first.at + 60_000, requestId: 'other' };
    expect(toProblems({ ledger: [...ledger, again] })).toContainEqual(
      expect.stringContaining(`handled twice without a cause: ${first.id}, 60`),
    );
    const forged = { ...first, id: 'forged-1' };
    expect(toProblems({ ledger: [...ledger, forged] })).toContainEqual('forged: forged-1 was handled, but nobody sent it');
    const changed = { ...first, isIntact: false };
    expect(toProblems({ ledger: [changed, ...ledger.slice(1)] })).toContainEqual(expect.stringContaining('with a changed body'));
    const attack = { kind: 'expired', id: 'expired-1', status: 200 } as const;
    expect(toProblems({ attacks: [attack] })).toEqual(['forged: expired expired-1 got a 2xx']);
    const half = ledger.slice(0, ledger.length / 2);
    expect(toProblems({ ledger: half })).toContainEqual(
      expect.stringMatching(/admitted, \d+ failed, \d+ late, but the app got \d+$/),
    );
    const statuses = new Map(run.lives.map((life) => [life, new Map([[200, 1]])]));
    expect(toProblems({ logs: { ...run.logs, statuses } })).toContainEqual(
      expect.stringMatching(/requests with 200 at rest, but 1 log lines$/),
    );
    const leak = run.resources.map(({ baseline, atRest }) => ({
      baseline,
      atRest: { ...atRest, descriptors: baseline.descriptors + 11 },
    }));
    expect(toProblems({ resources: leak })).toContainEqual('leak: gate 0 has 11 more file descriptors');
  });
});
