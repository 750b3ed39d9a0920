/** Rules for the workflows in .github/workflows, beyond the syntax that actionlint checks. */
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parse } from 'yaml';
import { z } from 'zod';

const ROOT = resolve(import.meta.dirname, '..', '..');
/** As in `uses: owner/name@<commit> # v1.2.3`. */
const PINNED = /^([\w.-]+\/[\w./-]+)@([0-9a-f]{40}) # (v\d+\.\d+\.\d+)$/;
/** The only expressions in commands: values of the matrix, which the workflow itself lists. */
const MATRIX = /\$\{\{ matrix\.([\w-]+) \}\}/g;

const text = z.record(z.string(), z.union([z.string(), z.number(), z.boolean()]));
const permissions = z.record(z.string(), z.enum(['read', 'write', 'none']));
const step = z.strictObject({
  name: z.string().optional(),
  id: z.string().optional(),
  uses: z.string().optional(),
  with: text.optional(),
  run: z.string().optional(),
  env: text.optional(),
});
const job = z.strictObject({
  needs: z.union([z.string(), z.array(z.string())]).default([]),
  uses: z.string().optional(),
  'runs-on': z.string().optional(),
  'timeout-minutes': z.number().optional(),
  environment: z.string().optional(),
  permissions: permissions.optional(),
  outputs: text.optional(),
  strategy: z
    .strictObject({ 'fail-fast': z.boolean().optional(), matrix: z.record(z.string(), z.array(z.unknown())) })
    .optional(),
  steps: z.array(step).default([]),
});
const workflow = z.strictObject({
  name: z.string(),
  on: z.record(z.string(), z.unknown()),
  permissions: z.strictObject({ contents: z.literal('read') }),
  concurrency: z.strictObject({ group: z.string(), 'cancel-in-progress': z.union([z.boolean(), z.string()]) }).optional(),
  env: text.optional(),
  jobs: z.record(z.string(), job),
});

type Job = z.infer<typeof job>;

/** A workflow in the form that these rules accept. */
export type Workflow = z.infer<typeof workflow>;

/** Parses a workflow; throws if it has another form. */
export function parseWorkflow(source: string): Workflow {
  return workflow.parse(parse(source));
}

/** Each rule that a workflow breaks, with the place. */
export function findWorkflowProblems(source: string): string[] {
  const parsed = workflow.safeParse(parse(source));
  if (!parsed.success) return parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  const { on, jobs } = parsed.data;
  const problems = 'pull_request_target' in on ? ['on: pull_request_target runs with secrets on code of a fork'] : [];
  for (const [, used = ''] of source.matchAll(/\buses: *(.+)$/gm)) problems.push(...checkUses(used));
  for (const [name, each] of Object.entries(jobs))
    problems.push(...checkJob(each, Object.keys(jobs)).map((problem) => `jobs.${name}: ${problem}`));
  return problems;
}

function checkUses(used: string): string[] {
  if (used.startsWith('./')) return existsSync(join(ROOT, used)) ? [] : [`${used} does not exist`];
  return PINNED.test(used) ? [] : [`${used}: must be pinned by a commit of 40 hex digits, with a comment # vX.Y.Z`];
}

function checkJob(each: Job, jobs: readonly string[]): string[] {
  const problems = [each.needs]
    .flat()
    .flatMap((needed) => (jobs.includes(needed) ? [] : [`needs ${needed}, which does not exist`]));
  if (each.uses !== undefined) return problems;
  if (each['timeout-minutes'] === undefined) problems.push('has no timeout-minutes');
  if (!/^(?:ubuntu-\d\d\.\d\d|\$\{\{ matrix\.runner \}\})$/.test(each['runs-on'] ?? ''))
    problems.push('runs-on: must name a version');
  for (const { uses = '', run = '', with: inputs } of each.steps) {
    if (uses.startsWith('actions/checkout@') && inputs?.['persist-credentials'] !== false)
      problems.push('checkout must have persist-credentials: false');
    if (run.replaceAll(MATRIX, '').includes('${{')) problems.push(`run: an expression in a command; use env: ${run}`);
  }
  return [...problems, ...listCommands(each).flatMap(checkCommand)];
}

/** The commands of a job, once for each value of its matrix. */
export function listCommands({ steps, strategy }: Job): string[] {
  const matrix = strategy?.matrix ?? {};
  return steps.flatMap(({ run = '' }) => {
    const [, name] = new RegExp(MATRIX.source).exec(run) ?? [];
    const values = name === undefined ? [''] : (matrix[name] ?? []);
    return values.map((value) => run.replaceAll(MATRIX, String(value)));
  });
}

/** Whether the scripts, suites and files exist that a command names. */
function checkCommand(command: string): string[] {
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: Record<string, string> };
  const problems: string[] = [];
  for (const [, script = ''] of command.matchAll(/\bnpm run ([\w:-]+)/g))
    if (!(script in scripts)) problems.push(`npm run ${script}: package.json has no such script`);
  for (const [, suite = ''] of command.matchAll(/\bnpm test -- (\w+)/g))
    if (!listSuites().includes(suite)) problems.push(`npm test -- ${suite}: scripts/test.ts has no such suite`);
  for (const [, file = ''] of command.matchAll(/\b(?:node|go -C|npx vitest run --project \w+) ([\w./-]+)/g))
    if (!existsSync(join(ROOT, file))) problems.push(`${file} does not exist`);
  return problems;
}

/** The suites of scripts/test.ts that have a name. */
export function listSuites(): string[] {
  const [, list = ''] = /^const SUITES = '(.+)'\.split/m.exec(readFileSync(join(ROOT, 'scripts', 'test.ts'), 'utf8')) ?? [];
  return list.split(' ');
}
