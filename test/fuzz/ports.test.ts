import { afterAll, beforeAll, expect, test } from 'vitest';
import { CI_SEED, fuzzTarget } from './guided.ts';
import { type FuzzedGate, startFuzzedGate } from './ports/fuzzed-gate.ts';
import { toPorts } from './ports.ts';

let gate: FuzzedGate;
beforeAll(async () => {
  gate = await startFuzzedGate();
});
afterAll(() => gate.stop());

test.each(['http1-port', 'balanced-port', 'hostile-app', 'http2-port', 'provider-api'])(
  'the properties of %s hold',
  async (name) => {
    const found = toPorts(gate).find(({ target }) => target.name === name);
    if (found === undefined) throw new Error(`no target ${name}`);
    const { failure, inputs } = await fuzzTarget(found.target, { seed: CI_SEED, inputs: found.inputs, seconds: 60 });
    expect(failure).toBeUndefined();
    expect(inputs).toBeGreaterThan(0);
  },
);
