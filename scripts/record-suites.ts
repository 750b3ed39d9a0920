/** `npm run record:suites`: keeps the results of the suites that ran last in bench/RESULTS-suites.json, for docs/reliability.md. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PROMISES, SUITES } from './reliability-promises.ts';
import { readSuiteResults, SUITE_RESULTS_FILE, type SuiteReport, type SuiteResult, summarizeReport } from './suite-results.ts';

const [folder = join('.cache', 'reports')] = process.argv.slice(2);
const commit = execFileSync('git', ['rev-parse', '--short=12', 'HEAD'], { encoding: 'utf8' }).trim();
const proofs = Object.values(PROMISES)
  .flat()
  .flatMap((promised) => promised.proofs);
const results: Record<string, SuiteResult> = { ...readSuiteResults() };
for (const suite of Object.keys(SUITES)) {
  const file = join(folder, `${suite}.json`);
  if (!existsSync(file)) continue;
  const keys = proofs.filter((proof) => proof.kind === 'test' && proof.suite === suite) as { file: string; title: string }[];
  const result = summarizeReport(JSON.parse(readFileSync(file, 'utf8')) as SuiteReport, keys, commit);
  results[suite] = result;
  console.log(`${suite}: ${result.passed} passed, ${result.failed} failed`);
}
writeFileSync(SUITE_RESULTS_FILE, `${JSON.stringify(results, null, 2)}\n`);
