import { existsSync, globSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, describe, expect, test } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import { injectFiles } from '../src/cli/inject.ts';
import { parseConfig } from '../src/config/load/load.ts';
import { systemClock } from '../src/core/clock.ts';
import { HELM, helm } from './support/chart.ts';
import { type Block, place, readBlocks } from './support/doc-blocks.ts';
import { runBlocks } from './support/doc-output.ts';
import { DocSession } from './support/doc-session.ts';
import { run } from './support/run.ts';

const ROOT = join(import.meta.dirname, '..');
/** Has what a page installs by pip (test/prepare/prepare-test.ts). */
const PYTHON_FOLDER = join(ROOT, '.cache/frameworks-python');
const ANY_ROUTE = 'routes: [{ name: any, match: { path: / }, upstream: "http://127.0.0.1:3000", allow: anyone }]\n';
/** As the injector starts a sidecar. */
const IN_A_POD = { listen: ':8480', admin: ':8481', upstream: 'http://127.0.0.1:3000' };
const CONFIG_KEYS = /^(?:listen|store|routes|proxy|authz|identity|admin|journal|explain|tracing|provider):/m;
const chartValues = JSON.parse(readFileSync(join(ROOT, 'chart/sidegate/values.schema.json'), 'utf8')) as {
  properties: Record<string, unknown>;
};

const hasSystemd = (process.env['PATH'] ?? '').split(delimiter).some((folder) => existsSync(join(folder, 'systemd-analyze')));
const PAGES = [
  'README.md',
  'CONTRIBUTING.md',
  'docs/config.md',
  'docs/provider-kubernetes.md',
  ...pagesIn('docs/tutorials'),
  ...pagesIn('docs/how-to'),
];
/** Run by test/e2e/examples.test.ts, fixtures.test.ts and test/oracles/go-example.test.ts. */
const EXAMPLES = globSync('examples/*/README.md', { cwd: ROOT }).sort();
const blocks = [...PAGES, ...EXAMPLES].flatMap((page) => readBlocks(page, join(ROOT, page)));
const skipped = blocks.filter(({ directive }) => directive.kind === 'not-run');

const sessions: DocSession[] = [];
afterEach(async () => {
  for (const session of sessions.splice(0)) await session.close();
});

function pagesIn(folder: string): string[] {
  return readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => `${folder}/${name}`);
}

describe('the commands of the README, the tutorials and the how-to guides', () => {
  test.for(PAGES)('work as %s shows them', { timeout: 60_000 }, async (page, { skip }) => {
    const own = blocks.filter((block) => block.page === page);
    const needsPython = own.some(({ language, text }) => language === 'sh' && text.includes('python3 manage.py'));
    if (needsPython && !existsSync(`${PYTHON_FOLDER}/ready`)) skip('Django could not be installed');
    const session = new DocSession({ commands: { python3: `exec '${PYTHON_FOLDER}/bin/python' "$@"` } });
    sessions.push(session);
    await session.prepare(own.map(({ text }) => text));
    await runBlocks(session, own);
  });

  test('are either run or marked with the reason why not', () => {
    for (const block of skipped) {
      const { directive } = block;
      const reason = directive.kind === 'not-run' ? directive.reason : '';
      expect(reason.length, place(block)).toBeGreaterThan(10);
      console.log(`not run: ${place(block)}: ${reason}`);
    }
    const commands = blocks.filter(({ language }) => language === 'sh');
    const run = commands.filter(({ directive }) => directive.kind !== 'not-run');
    expect(run.length).toBeGreaterThan(commands.length / 2);
    // A block in another spelling of the language would be neither run nor listed.
    expect(blocks.filter(({ language }) => ['', 'bash', 'shell', 'console', 'yml'].includes(language)).map(place)).toEqual([]);
  });
});

const yamlBlocks = blocks.filter(({ language, directive }) => language === 'yaml' && directive.kind !== 'not-run');
const isKubernetes = ({ text }: Block): boolean => /^apiVersion:/m.test(text);
const isConfig = (block: Block): boolean => !isKubernetes(block) && CONFIG_KEYS.test(block.text) && !isValues(block);
const isValues = ({ text, file }: Block): boolean =>
  file?.endsWith('values.yaml') === true ||
  (!/^apiVersion:/m.test(text) && topKeys(text).length > 0 && topKeys(text).every((key) => key in chartValues.properties));

function topKeys(text: string): string[] {
  return [...text.matchAll(/^([a-zA-Z]+):/gm)].map(([, key = '']) => key);
}

const rows = (found: readonly Block[]): [string, Block][] => found.map((block) => [place(block), block]);

describe('the YAML of the same pages', () => {
  test.each(rows(yamlBlocks.filter(isConfig)))('is a config that sidegate accepts, at %s', (_place, { text }) => {
    const overrides = text.includes('../secrets/') ? IN_A_POD : {};
    const whole = text.includes('routes:') ? text : text + ANY_ROUTE;
    const { problems } = parseConfig('gate.yaml', whole, systemClock, { overrides });
    expect(problems.filter(({ severity }) => severity === 'error')).toEqual([]);
  });

  test.each(rows(yamlBlocks.filter(isKubernetes)))(
    'is Kubernetes objects that the injector accepts, at %s',
    async (_place, { text }) => {
      let written = '';
      const write = (more: string): void => {
        written += more;
      };
      const stdin = Readable.from([text]) as NodeJS.ReadableStream;
      const options = { filename: ['-'], namespace: 'default', kubeVersion: '1.34', format: 'yaml' };
      expect(await injectFiles(options, { stdin, env: {}, stdout: write, stderr: write }), written).toBe(0);
      for (const document of parseAllDocuments(text)) {
        const { kind, data } = document.toJS() as { kind: string; data?: Record<string, string> };
        const config = kind === 'ConfigMap' ? data?.['gate.yaml'] : undefined;
        if (config === undefined) continue;
        const { problems } = parseConfig('gate.yaml', config, systemClock, { overrides: IN_A_POD });
        expect(problems.filter(({ severity }) => severity === 'error')).toEqual([]);
      }
    },
  );

  test.each(rows(yamlBlocks.filter(isValues)))('is values that the chart has, at %s', async (_place, { text }) => {
    expect(topKeys(text).filter((key) => !(key in chartValues.properties))).toEqual([]);
    if (!existsSync(HELM)) return;
    const session = new DocSession();
    sessions.push(session);
    const file = join(session.folder, 'values.yaml');
    writeFileSync(file, text);
    const args = [
      'template',
      'sidegate',
      join(ROOT, 'chart/sidegate'),
      '--namespace',
      'sidegate-system',
      '--kube-version',
      '1.36',
    ];
    const { code, stderr } = await helm(...args, '--values', file);
    expect(code, stderr).toBe(0);
  });

  test.each(rows(yamlBlocks))('is well-formed, at %s', (_place, { text }) => {
    for (const document of parseAllDocuments(text)) expect(document.errors).toEqual([]);
  });
});

describe('the service files of the tutorial for a VM', () => {
  const own = blocks.filter(({ page }) => page === 'docs/tutorials/vm.md');
  const named = (file: string): string => own.find((block) => block.file === file)?.text ?? '';

  test.skipIf(!hasSystemd)('are a unit that systemd accepts', async () => {
    const session = new DocSession();
    sessions.push(session);
    // systemd looks for the program, which is not installed here.
    const unit = named('sidegate.service').replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`);
    const file = join(session.folder, 'sidegate.service');
    writeFileSync(file, unit);
    const { code, stderr } = await run('systemd-analyze', ['verify', '--man=no', file]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  });

  test('are a Compose file whose mounts are files of the page, with the app on the loopback of sidegate', () => {
    const { services } = parse(named('compose.yaml')) as {
      services: Record<string, { volumes: string[]; network_mode?: string; ports?: string[] }>;
    };
    expect(services['sidegate']?.network_mode).toBe('service:app');
    // The published port is the one that gate.yaml listens on.
    const [, listening] = /address: :(\d+)/.exec(named('sidegate/gate.yaml')) ?? [];
    expect(services['app']?.ports).toEqual([`443:${listening}`]);
    const files = own.flatMap(({ file }) => (file === undefined ? [] : [file]));
    for (const { volumes } of Object.values(services))
      for (const volume of volumes) {
        const [source = ''] = volume.split(':');
        const path = source.replace('./', '');
        expect(
          files.some((file) => file === path || file.startsWith(`${path}/`)),
          volume,
        ).toBe(true);
      }
  });
});
