/** `npm run fuzz`: runs the targets with mutated inputs for a time, and exits with 1 if a property did not hold. */
import { parseArgs } from 'node:util';
import { fuzzTarget } from './guided.ts';
import { PARSERS } from './parsers.ts';
import { startFuzzedGate } from './ports/fuzzed-gate.ts';
import { toPorts } from './ports.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '120' },
    seed: { type: 'string', default: '1' },
    targets: { type: 'string', default: '' },
  },
});
const gate = await startFuzzedGate();
const all = [...PARSERS, ...toPorts(gate)].map(({ target }) => target);
const wanted = values.targets === '' ? undefined : values.targets.split(',');
const targets = all.filter(({ name }) => wanted?.includes(name) ?? true);
if (targets.length === 0) console.error(`no such target; targets: ${all.map(({ name }) => name).join(', ')}`);
process.exitCode = targets.length === 0 ? 2 : 0;
const seconds = Number(values.seconds) / targets.length;
for (const target of targets) {
  const run = await fuzzTarget(target, { seed: Number(values.seed), inputs: Number.POSITIVE_INFINITY, seconds });
  console.log(`${target.name}: ${run.inputs} inputs, ${run.kept} of them ran new code (seed ${values.seed})`);
  if (run.failure === undefined) continue;
  console.log(run.failure);
  process.exitCode = 1;
}
await gate.stop();
