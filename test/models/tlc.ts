/** Runs TLC, the model checker of TLA+, on one of the models. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { toTlcJar } from '../prepare/model-checker.ts';

/** A value of TLA+: a set is an array, `{ value }` is a model value. */
export type TlaValue = number | string | boolean | { readonly value: string } | readonly TlaValue[];

export interface Check {
  /** Path of the module below test/models, without extension. */
  readonly module: string;
  readonly constants: Readonly<Record<string, TlaValue>>;
  readonly invariants?: readonly string[];
  readonly properties?: readonly string[];
  readonly isSymmetric?: boolean;
  /** Writes all states to this file. */
  readonly dump?: string;
}

/** A scope that is checked completely. */
export interface CompleteScope {
  readonly name: string;
  /** Distinct states; a different number means that the model changed. */
  readonly states: number;
  /** Checked only with MODELS=long. */
  readonly isLong?: boolean;
}

/** The scopes that this run checks. */
export function selectScopes<Scope extends CompleteScope>(scopes: readonly Scope[]): readonly Scope[] {
  return process.env['MODELS'] === 'long' ? scopes : scopes.filter(({ isLong = false }) => !isLong);
}

export interface CheckResult {
  /** Distinct states. */
  readonly states: number;
  readonly seconds: number;
  /** The invariant that does not hold; `temporal` for a temporal property. */
  readonly violated: string | undefined;
  /** The actions of the counterexample. */
  readonly trace: readonly string[];
  /** What the model printed, as kinds and sets of causes: each one once. */
  readonly reported: readonly ReportedCauses[];
}

const VIOLATION = 12;
const LIVENESS_VIOLATION = 13;
const CACHE = resolve('.cache', 'models');

/** The causes of a state that the model reports. */
export interface ReportedCauses {
  readonly kind: string;
  readonly causes: readonly string[];
}

export async function runTlc(check: Check): Promise<CheckResult> {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'run-'));
  try {
    const config = join(folder, 'check.cfg');
    writeFileSync(config, formatConfig(check));
    const startedAt = performance.now();
    const { status, output } = await run(check, folder, config);
    const seconds = (performance.now() - startedAt) / 1_000;
    if (![0, VIOLATION, LIVENESS_VIOLATION].includes(status)) throw new Error(`TLC ended with ${status}:\n${output}`);
    const states = /(\d+) distinct states found 0 states left on queue\.$/m.exec(output.replaceAll(',', ''))?.[1];
    return {
      states: Number(states ?? Number.NaN),
      seconds,
      violated: findViolation(status, output),
      trace: findTrace(output),
      reported: findReported(output),
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function run({ module, dump }: Check, folder: string, config: string): Promise<{ status: number; output: string }> {
  const path = resolve(import.meta.dirname, module);
  // Short runs: compiling all code well takes longer than it saves. TLC unpacks its modules into the folder for temporary files.
  const java = [
    '-XX:+UseSerialGC',
    '-XX:TieredStopAtLevel=1',
    '-Xmx1g',
    `-Djava.io.tmpdir=${folder}`,
    '-cp',
    toTlcJar(),
    'tlc2.TLC',
  ];
  const dumping = dump === undefined ? [] : ['-dump', resolve(dump)];
  const options = ['-workers', '1', '-deadlock', '-nowarning', '-metadir', folder, '-config', config, ...dumping];
  const child = spawn('java', [...java, ...options, `${basename(path)}.tla`], {
    cwd: dirname(path),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
  const [status] = (await once(child, 'close')) as [number | null];
  return { status: status ?? -1, output };
}

/** Model values, which TLC can permute. */
export function toModelValues(prefix: string, count: number): TlaValue {
  return Array.from({ length: count }, (_, i) => ({ value: `${prefix}${i + 1}` }));
}

function formatConfig({ constants, invariants = [], properties = [], isSymmetric = false }: Check): string {
  const values = Object.entries(constants).map(([name, value]) => `  ${name} = ${formatValue(value)}`);
  const lines = ['SPECIFICATION Spec', 'CONSTANTS', ...values];
  if (isSymmetric) lines.push('SYMMETRY Symmetry');
  if (invariants.length > 0) lines.push(`INVARIANTS ${invariants.join(' ')}`);
  if (properties.length > 0) lines.push(`PROPERTIES ${properties.join(' ')}`);
  return `${lines.join('\n')}\n`;
}

function formatValue(value: TlaValue): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'boolean') return value ? 'TRUE' : 'FALSE';
  if (typeof value === 'number') return String(value);
  if ('value' in value) return value.value;
  return `{${value.map(formatValue).join(', ')}}`;
}

function findViolation(status: number, output: string): string | undefined {
  if (status === LIVENESS_VIOLATION) return 'temporal';
  return status === VIOLATION ? (/Invariant (\w+) is violated/.exec(output)?.[1] ?? 'unknown') : undefined;
}

function findTrace(output: string): string[] {
  return [...output.matchAll(/^State \d+: <(\w+) /gm)].flatMap(([, name = '']) => (name === 'Initial' ? [] : [name]));
}

function findReported(output: string): ReportedCauses[] {
  const lines = new Set(output.split('\n').filter((line) => /^<<"\w+", \{.*\}>>$/.test(line)));
  return [...lines].map((line) => {
    const [kind = '', ...causes] = [...line.matchAll(/"([^"]*)"/g)].map(([, text = '']) => text);
    return { kind, causes };
  });
}

/** The causes that alone lead to a state of this kind. */
export function findSoleCauses(reported: readonly ReportedCauses[], kind: string): Set<string> {
  return new Set(reported.flatMap((each) => (each.kind === kind && each.causes.length === 1 ? each.causes : [])));
}
