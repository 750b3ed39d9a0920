import { existsSync, globSync, readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { readRepository } from '../scripts/release-notes.ts';
import { ACTIONLINT, toModuleFolder } from './prepare/cluster-tools.ts';
import { findWorkflowProblems, listCommands, listSuites, parseWorkflow, type Workflow } from './support/workflows.ts';

const ROOT = resolve(import.meta.dirname, '..');
const FOLDER = join(ROOT, '.github', 'workflows');
const FILES = readdirSync(FOLDER);
const read = (...path: readonly string[]): string => readFileSync(join(ROOT, ...path), 'utf8');
const workflow = (name: string): Workflow => parseWorkflow(readFileSync(join(FOLDER, `${name}.yml`), 'utf8'));
const commandsOf = (...names: readonly string[]): string[] =>
  names.flatMap((name) => Object.values(workflow(name).jobs).flatMap(listCommands));

describe('the workflows', () => {
  test.each(FILES)('%s keeps the rules', (name) => {
    expect(findWorkflowProblems(readFileSync(join(FOLDER, name), 'utf8'))).toEqual([]);
  });

  test('use one commit and one version of each action', () => {
    const pins = new Map<string, Set<string>>();
    for (const name of FILES)
      for (const [, action = '', pin = ''] of readFileSync(join(FOLDER, name), 'utf8').matchAll(
        /uses: ([\w-]+\/[\w-]+)\S*(@.+)$/gm,
      ))
        pins.set(action, (pins.get(action) ?? new Set()).add(pin));
    expect(pins.size).toBeGreaterThan(8);
    expect([...pins].filter(([, used]) => used.size > 1)).toEqual([]);
  });

  test('run every suite, each shard of the main one once, and no job of ci.yml for more than ten minutes', () => {
    const commands = commandsOf('ci', 'nightly');
    for (const suite of listSuites())
      expect(
        commands.some((each) => each.endsWith(`npm test -- ${suite}`)),
        suite,
      ).toBe(true);
    const shards = commands.flatMap((each) => [...(/--shard=(\d+\/\d+)/.exec(each)?.slice(1) ?? [])]);
    expect(shards).toEqual(shards.map((_, index) => `${index + 1}/${shards.length}`));
    expect(shards.length).toBeGreaterThan(1);
    for (const [name, job] of Object.entries(workflow('ci').jobs)) expect(job['timeout-minutes'], name).toBeLessThanOrEqual(10);
  });

  test('give write permissions only to jobs that publish, and a token for npm and registries to none that runs code of pull requests', () => {
    const writers = FILES.flatMap((name) =>
      Object.entries(parseWorkflow(readFileSync(join(FOLDER, name), 'utf8')).jobs).flatMap(([job, { permissions = {} }]) =>
        Object.entries(permissions).flatMap(([scope, right]) => (right === 'write' ? [`${name} ${job} ${scope}`] : [])),
      ),
    );
    expect(writers.toSorted()).toEqual([
      'codeql.yml analyze security-events',
      'release.yml charts attestations',
      'release.yml charts id-token',
      'release.yml charts packages',
      'release.yml image packages',
      'release.yml index attestations',
      'release.yml index id-token',
      'release.yml index packages',
      'release.yml notes contents',
      'release.yml npm id-token',
      'release.yml publish-site contents',
      'scorecard.yml analyze id-token',
      'scorecard.yml analyze security-events',
    ]);
    for (const name of FILES.filter((each) => each !== 'release.yml'))
      expect(readFileSync(join(FOLDER, name), 'utf8'), name).not.toContain('secrets.');
  });

  test('publish after the checks, and to npm only after everything else was published', () => {
    const { jobs } = workflow('release');
    const isAfter = (name: string, earlier: string): boolean =>
      [jobs[name]?.needs ?? []].flat().some((needed) => needed === earlier || isAfter(needed, earlier));
    for (const name of ['package', 'image', 'index', 'charts', 'npm', 'notes', 'publish-site'])
      for (const gate of ['verify', 'ci']) expect(isAfter(name, gate), `${name} after ${gate}`).toBe(true);
    expect(isAfter('npm', 'charts')).toBe(true);
    expect(isAfter('npm', 'image')).toBe(true);
    expect(jobs['verify']?.environment).toBe('release');
  });

  test('run the actionlint of the oracles', () => {
    const [, folder = ''] =
      commandsOf('ci')
        .map((each) => /go -C (\S+) run (\S+)/.exec(each))
        .find((found) => found !== null) ?? [];
    expect(resolve(ROOT, folder)).toBe(toModuleFolder(ACTIONLINT));
    expect(`actionlint-${/actionlint (v\S+)/.exec(read(folder, 'go.mod'))?.[1]}`).toBe(ACTIONLINT.name);
  });
});

describe('the rules for workflows', () => {
  const good = (
    changes: { on?: string; permissions?: string; uses?: string; run?: string; job?: string } = {},
  ): string => `name: a
on:
  ${changes.on ?? 'push'}:
permissions:
  contents: ${changes.permissions ?? 'read'}
jobs:
  a:
    runs-on: ubuntu-24.04
    ${changes.job ?? 'timeout-minutes: 5'}
    steps:
      - uses: ${changes.uses ?? `actions/checkout@${'0'.repeat(40)} # v1.2.3`}
        with: { persist-credentials: false }
      - run: ${changes.run ?? 'npm run lint'}
`;

  test('accept a workflow that keeps them', () => {
    expect(findWorkflowProblems(good())).toEqual([]);
  });

  test.each([
    ['an action by its tag', { uses: 'actions/checkout@v4' }, 'actions/checkout@v4: must be pinned'],
    ['a commit without its version', { uses: `actions/checkout@${'0'.repeat(40)}` }, 'with a comment # vX.Y.Z'],
    ['a short commit', { uses: 'actions/checkout@0123456 # v1.2.3' }, 'must be pinned'],
    ['a local workflow that does not exist', { uses: './.github/workflows/gone.yml' }, 'gone.yml does not exist'],
    ['write permissions at the top', { permissions: 'write' }, 'permissions.contents'],
    ['pull_request_target', { on: 'pull_request_target' }, 'pull_request_target runs with secrets'],
    ['an expression in a command', { run: 'echo $' + '{{ github.event.issue.title }}' }, 'an expression in a command'],
    ['a script that does not exist', { run: 'npm run gone' }, 'npm run gone: package.json has no such script'],
    ['a suite that does not exist', { run: 'npm test -- gone' }, 'npm test -- gone: scripts/test.ts has no such suite'],
    ['a file that does not exist', { run: 'node scripts/gone.ts' }, 'scripts/gone.ts does not exist'],
    ['a job that does not exist', { job: 'needs: gone' }, 'needs gone, which does not exist'],
    ['a job without a limit', { job: 'needs: []' }, 'has no timeout-minutes'],
    ['a misspelt key', { job: 'timeout-minute: 5' }, 'timeout-minute'],
  ])('find %s', (_, changes, message) => {
    expect(findWorkflowProblems(good(changes)).join('\n')).toContain(message);
  });
});

describe('the other files for the host of the repository', () => {
  test('name owners for paths that exist', () => {
    const lines = read('.github', 'CODEOWNERS')
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'));
    expect(lines[0]).toMatch(/^\* +@/);
    for (const [path = '', ...owners] of lines.map((line) => line.split(/ +/))) {
      if (path !== '*') expect(existsSync(join(ROOT, path)), path).toBe(true);
      expect(owners.length, path).toBeGreaterThan(0);
    }
  });

  test('have issue forms whose fields have an id and a label, and no blank issues', () => {
    const forms = globSync('*.yml', { cwd: join(ROOT, '.github', 'ISSUE_TEMPLATE') }).filter((name) => name !== 'config.yml');
    expect(forms.length).toBeGreaterThan(1);
    for (const name of forms) {
      const form = parse(read('.github', 'ISSUE_TEMPLATE', name)) as {
        name: string;
        description: string;
        body: readonly Field[];
      };
      expect(form).toMatchObject({ name: expect.any(String), description: expect.any(String) });
      const fields = form.body.filter(({ type }) => type !== 'markdown');
      expect(fields.length, name).toBeGreaterThan(1);
      expect(new Set(fields.map(({ id }) => id)).size, name).toBe(fields.length);
      for (const { attributes } of fields) expect(attributes.label, name).toMatch(/^[A-Z]/);
    }
    expect(parse(read('.github', 'ISSUE_TEMPLATE', 'config.yml'))).toMatchObject({ blank_issues_enabled: false });
  });

  test('build the development container from the base image of the Dockerfile', () => {
    const base = (file: string): string | undefined => /^FROM (node:\S+)/m.exec(read(file))?.[1];
    expect(base('.devcontainer/Dockerfile')).toBe(base('Dockerfile'));
    const { postCreateCommand } = JSON.parse(read('.devcontainer', 'devcontainer.json')) as Record<string, unknown>;
    expect(postCreateCommand).toBe('npm ci');
  });

  test('name one repository, in whose registry the chart looks for the image', () => {
    const path = readRepository().replace('https://github.com/', '');
    const owned = [
      'chart/sidegate/Chart.yaml',
      'chart/sidegate-lib/Chart.yaml',
      'SECURITY.md',
      '.github/ISSUE_TEMPLATE/config.yml',
    ];
    for (const file of owned) {
      const urls = [...read(file).matchAll(/https:\/\/github\.com\/([\w.-]+\/[\w.-]+)/g)].map(([, found]) => found);
      expect(new Set(urls), file).toEqual(new Set([path]));
    }
    expect((parse(read('chart', 'sidegate', 'values.yaml')) as { image: object }).image).toMatchObject({
      repository: `ghcr.io/${path}`,
    });
  });
});

interface Field {
  readonly type: string;
  readonly id?: string;
  readonly attributes: { readonly label?: string };
}
