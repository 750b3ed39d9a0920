/** `npm run bench -- schemes`: the cost of verifying one delivery by preset, compared with bare cryptography and the senders' own libraries. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import process, { cpuUsage } from 'node:process';
import { describeMachine } from '../machine.ts';
import { median, pairedRatio } from '../statistics.ts';
import { type Check, createContests } from './contenders.ts';

const ROUNDS = 7;
const WARM_UP = 5_000;
const SIZES: readonly (readonly [title: string, bytes: number, count: number])[] = [
  ['1 KiB', 1_024, 10_000],
  ['64 KiB', 65_536, 1_000],
];
const REPORT = join(import.meta.dirname, '..', 'RESULTS-schemes.md');

interface Figures {
  readonly preset: string;
  readonly engine: number[];
  readonly bare: number[];
  readonly library: { readonly name: string; readonly micros: number[] } | undefined;
}

/** Microseconds of CPU, user and system, per check, for `count` checks. */
async function measure(check: Check, count: number): Promise<number> {
  const before = cpuUsage();
  for (let i = 0; i < count; i++) {
    const pending = check();
    if (pending !== undefined) await pending;
  }
  const { user, system } = cpuUsage(before);
  return (user + system) / count;
}

async function play(bytes: number, count: number): Promise<Figures[]> {
  const contests = createContests(bytes);
  const figures = contests.map(({ preset, library }): Figures => {
    return { preset, engine: [], bare: [], library: library && { name: library.name, micros: [] } };
  });
  for (const { engine, bare, library } of contests)
    for (const check of [engine, bare, library?.check]) if (check !== undefined) await measure(check, WARM_UP);
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, { engine, bare, library }] of contests.entries()) {
      const row = figures[i] as Figures;
      row.engine.push(await measure(engine, count));
      row.bare.push(await measure(bare, count));
      if (library !== undefined) row.library?.micros.push(await measure(library.check, count));
    }
  return figures;
}

function toTable(title: string, figures: readonly Figures[]): string[] {
  const rows = figures.map(({ preset, engine, bare, library }) => {
    const beside = `${pairedRatio(engine, bare).toFixed(2)} ×`;
    const theirs = library === undefined ? '' : `${library.name}: ${median(library.micros).toFixed(1)}`;
    const against = library === undefined ? '' : `${pairedRatio(engine, library.micros).toFixed(2)} ×`;
    return `| ${[preset, median(engine).toFixed(1), median(bare).toFixed(1), beside, theirs, against].join(' | ')} |`;
  });
  return [
    `### Content of ${title}`,
    '',
    "| preset | engine µs | bare HMAC µs | engine against it | sender's library µs | engine against it |",
    '| --- | --- | --- | --- | --- | --- |',
    ...rows,
    '',
  ];
}

const tables: string[] = [];
for (const [title, bytes, count] of SIZES) tables.push(...toTable(title, await play(bytes, count)));
const report = [
  '# Benchmark results: signature schemes',
  '',
  'Written by `npm run bench -- schemes`; do not edit.',
  '',
  `${[...describeMachine(), `Node ${process.version}`].join('; ')}. CPU time of one process, user and system, for one valid delivery;`,
  `medians of ${ROUNDS} rounds in turns, ratios are the medians of those within each round.`,
  '',
  'The engine reads the headers, strictly, verifies over the raw bytes, and finds the id (in the content, where the sender has it there) or the',
  'digest of what was signed. Bare HMAC is an HMAC of the same length and a comparison, which no verifier can do without.',
  '',
  ...tables,
].join('\n');
writeFileSync(REPORT, report);
console.log(report);
