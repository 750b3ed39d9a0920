/** A copy of the tree in which one mutant after another is tried; the tree itself is never changed. */
import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { applyMutant, type Mutant } from './mutants.ts';
import { type ImportGraph, pickTests } from './nearest-tests.ts';
import { ROUNDS, type Round } from './targets.ts';

/** What became of a mutant. `unfinished`: the time or the rounds of the whole run were over. */
export type Outcome =
  | { readonly kind: 'killed' | 'timed out'; readonly by: string }
  | { readonly kind: 'survived' }
  | { readonly kind: 'unfinished' };

type TestRun = { readonly kind: 'passed' } | { readonly kind: 'timed out' } | { readonly kind: 'failed'; readonly file: string };

const NOT_COPIED = new Set(['.git', '.cache', 'node_modules']);
const LINKED = ['.cache', 'node_modules'];

/** One copy; tries one mutant at a time. */
export class Workbench {
  readonly #root: string;
  readonly #folder: string;
  readonly #graph: ImportGraph;
  /** Test files that were seen to pass, or to fail, without any mutant. */
  readonly #sound = new Map<string, boolean>();
  /** In milliseconds since the epoch: when the whole run ends. */
  readonly #deadline: number;
  #killTests: () => void = () => undefined;

  constructor(root: string, graph: ImportGraph, deadline: number) {
    this.#root = root;
    this.#graph = graph;
    this.#deadline = deadline;
    this.#folder = mkdtempSync(join(tmpdir(), 'sidegate-mutation-'));
    cpSync(root, this.#folder, { recursive: true, filter: (path) => !NOT_COPIED.has(relative(root, path)) });
    for (const name of LINKED) symlinkSync(resolve(root, name), join(this.#folder, name));
  }

  /** Ends what runs, and removes the copy. */
  close(): void {
    this.#killTests();
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Runs one round of tests; undefined if all of them pass. */
  async judge(mutant: Mutant, round: number): Promise<Outcome | undefined> {
    if (Date.now() >= this.#deadline) return { kind: 'unfinished' };
    const path = join(this.#folder, mutant.file);
    // Of the copy: the tree may change meanwhile.
    const source = readFileSync(path, 'utf8');
    const tests = this.#graph.testsOf(mutant.file);
    const done = new Set<string>();
    for (const earlier of ROUNDS.slice(0, round)) for (const file of pickTests(tests, earlier, done)) done.add(file);
    const current = ROUNDS[round] as Round;
    const files = pickTests(tests, current, done);
    writeFileSync(path, applyMutant(source, mutant));
    return this.#runRound(files, current.seconds, () => writeFileSync(path, source));
  }

  /** Undefined where all tests pass. A failure counts only if its file passes without the mutant. */
  async #runRound(files: readonly string[], seconds: number, restore: () => void): Promise<Outcome | undefined> {
    const sound = files.filter((file) => this.#sound.get(file) !== false);
    const run: TestRun = sound.length === 0 ? { kind: 'passed' } : await this.#run(sound, seconds);
    restore();
    if (run.kind === 'passed') return undefined;
    if (Date.now() >= this.#deadline) return { kind: 'unfinished' };
    if (run.kind === 'timed out') return { kind: 'timed out', by: `${sound.length} test files` };
    if (await this.#isSound(run.file)) return { kind: 'killed', by: run.file };
    console.log(`  ignored: ${run.file} fails without any mutant`);
    return this.#runRound(files, seconds, restore);
  }

  async #isSound(file: string): Promise<boolean> {
    const known = this.#sound.get(file);
    if (known !== undefined) return known;
    const { kind } = await this.#run([file], 120);
    if (kind === 'timed out' && Date.now() >= this.#deadline) return true;
    this.#sound.set(file, kind === 'passed');
    return kind === 'passed';
  }

  async #run(files: readonly string[], seconds: number): Promise<TestRun> {
    const report = join(this.#folder, 'mutation-report.json');
    rmSync(report, { force: true });
    const vitest = resolve(this.#root, 'node_modules/vitest/vitest.mjs');
    const options = ['--bail=1', '--maxWorkers=1', '--reporter=json', `--outputFile=${report}`];
    const args = [vitest, 'run', '--project', 'test', ...options, ...files];
    const child = spawn(process.execPath, args, { cwd: this.#folder, stdio: 'ignore', detached: true });
    const kill = (): void => {
      this.#killTests = () => undefined;
      killGroup(child.pid);
      killStrays(this.#folder);
    };
    this.#killTests = kill;
    let isLate = false;
    const limit = Math.max(0, Math.min(seconds * 1_000, this.#deadline - Date.now()));
    const timer = setTimeout(() => {
      isLate = true;
      kill();
    }, limit);
    const status = await new Promise<number | null>((done) => child.once('close', done));
    clearTimeout(timer);
    kill();
    if (isLate) return { kind: 'timed out' };
    return status === 0 ? { kind: 'passed' } : { kind: 'failed', file: findFailed(report, this.#folder) ?? files[0] ?? '' };
  }
}

function killGroup(leader: number | undefined): void {
  try {
    if (leader !== undefined) process.kill(-leader, 'SIGKILL');
  } catch {
    // All of them have ended.
  }
}

/** Programs of the copy that left the group of their test. */
function killStrays(folder: string): void {
  if (process.platform !== 'linux') return;
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name)))
    try {
      if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`${folder}/`)) process.kill(Number(pid), 'SIGKILL');
    } catch {
      // It has ended, or is not ours.
    }
}

function findFailed(report: string, folder: string): string | undefined {
  try {
    const { testResults } = JSON.parse(readFileSync(report, 'utf8')) as {
      testResults: { readonly name: string; readonly status: string }[];
    };
    const failed = testResults.find(({ status }) => status === 'failed');
    return failed === undefined ? undefined : relative(folder, failed.name);
  } catch {
    return undefined;
  }
}
