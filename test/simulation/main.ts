/**
 * Runs simulated worlds, one seed after the other, until they add up to a number of hours: `node test/simulation/main.ts --seed 1 --hours 10`.
 * Prints a line of JSON for each, and the end of the trace of one that fails. `--trace` prints the whole trace, `--mutant` changes the program.
 */
import './platform.ts';
import { parseArgs } from 'node:util';
import { loadMutant } from './mutants.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: '1' },
    step: { type: 'string', default: '1' },
    hours: { type: 'string', default: '1' },
    trace: { type: 'boolean', default: false },
    mutant: { type: 'string' },
  },
});
if (values.mutant !== undefined) loadMutant(values.mutant);
// The program is loaded after its machine was replaced.
const { Configs, makeRunFolder } = await import('./machine-config.ts');
const { runEpisode } = await import('./episode.ts');
const configs = new Configs(makeRunFolder());
let simulated = 0;
for (let seed = Number(values.seed); simulated < Number(values.hours); seed += Number(values.step)) {
  const before = process.cpuUsage();
  const { tail, counts, ...figures } = await runEpisode(seed, configs, values.trace);
  simulated += figures.hours;
  const hasFailed = figures.violations.length > 0;
  if (values.trace || hasFailed) for (const line of tail) console.error(line);
  const { user, system } = process.cpuUsage(before);
  console.log(JSON.stringify({ ...figures, counts: Object.fromEntries(counts), cpu: (user + system) / 1_000_000 }));
  if (!hasFailed) continue;
  process.exitCode = 1;
  break;
}
