import { existsSync, globSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { PAGES } from '../scripts/docs.ts';
import { lintLayers } from '../scripts/lint-layers.ts';
import { extractMarkdown } from '../scripts/prose/extract-markdown.ts';
import { findAll } from '../scripts/prose/rules.ts';
import { RECIPES, SOURCES, toStatus } from '../scripts/source-coverage-page.ts';
import { ADMIN_DENIALS, FORGOTTEN_STATES } from '../src/admin/admin-metrics.ts';
import { type AdminParts, createEndpoints } from '../src/app/admin.ts';
import { createMetrics } from '../src/app/metrics.ts';
import { injectFiles } from '../src/cli/inject.ts';
import { createProgram } from '../src/cli/program.ts';
import { isOfSender, renderSenderPage, SENDER_NOTES } from '../src/cli/sender-page.ts';
import { testConfigs } from '../src/cli/test.ts';
import { parseConfig } from '../src/config/load/load.ts';
import { systemClock } from '../src/core/clock.ts';
import { REFUSALS } from '../src/core/refusal.ts';
import { FIXES } from '../src/diagnostics/explain/findings.ts';
import { DEDUP_OUTCOMES, ORDER_OUTCOMES } from '../src/gateway/pipeline/route-metrics.ts';
import {
  CERTIFICATE_STEPS,
  createInjectorMetrics,
  EVENT_OUTCOMES,
  LOOKUP_OUTCOMES,
} from '../src/kubernetes/admission/injector-metrics.ts';
import { ADMISSIONS } from '../src/kubernetes/admission/reviewer.ts';
import { FINDINGS } from '../src/kubernetes/doctor/finding.ts';
import { STATES } from '../src/kubernetes/doctor/report.ts';
import { parseInjectorConfig } from '../src/kubernetes/injector/injector-config.ts';
import { hasForm } from '../src/kubernetes/injector/kubernetes-values.ts';
import { SETTINGS } from '../src/kubernetes/injector/settings.ts';
import { ATTEMPT_OUTCOMES } from '../src/provider/attempt/attempt.ts';
import { EVENT_REJECTIONS } from '../src/provider/telemetry/provider-metrics.ts';
import { HANDSHAKE_NAMES } from '../src/verify/handshakes/catalogue.ts';
import { PRESETS } from '../src/verify/presets/catalogue.ts';
import { SENDERS } from '../src/verify/presets/senders.ts';
import { toSnsHost } from '../src/verify/schemes/aws-sns.ts';
import { MAX_SIGNATURE_ENTRIES } from '../src/verify/schemes/head.ts';
import { makeFolder } from './support/fixtures.ts';
import { recordIo } from './support/io.ts';
import { renderProviderMetrics } from './support/provider-exposition.ts';
import { listSuites } from './support/workflows.ts';

const ROOT = join(import.meta.dirname, '..');
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

const SILENT = { env: {}, stdout: () => undefined, stderr: () => undefined };
const ANY_ROUTE = 'routes: [{ name: any, match: { path: / }, upstream: "http://127.0.0.1:3000", allow: anyone }]\n';
/** As the injector starts a sidecar. */
const IN_A_POD = { listen: ':8480', admin: ':8481', upstream: 'http://127.0.0.1:3000' };

/** The first cell of every row of a page's tables that is `code`. */
function firstCells(page: string): string[] {
  return [...read(page).matchAll(/^\| `([^`]+)` \|/gm)].map((match) => match[1] ?? '');
}

/** The page of each sender with a preset, which `sidegate scheme` prints. */
const SENDER_PAGES = PRESETS.filter(isOfSender).map((preset) => [preset.name, renderSenderPage(preset, 'docs/')] as const);

describe('the docs', () => {
  test.each(Object.entries(PAGES))('match what %s is generated from', (page, render) => {
    expect(read(page)).toBe(render());
    expect(read(page)).not.toContain('undefined');
    // A reference without the description of a key or a check.
    if (read(page).includes(': written by `npm run docs` -->')) expect(read(page)).not.toMatch(/[^| ] \|\s+\|$/m);
  });

  test('name every refusal with its status, and no others', () => {
    expect(firstCells('docs/refusals.md').sort()).toEqual(Object.keys(REFUSALS).sort());
    for (const [code, { status, retryAfterSeconds }] of Object.entries(REFUSALS)) {
      const row = read('docs/refusals.md')
        .split('\n')
        .find((line) => line.startsWith(`| \`${code}\` |`));
      expect(row).toContain(`| ${status}`);
      expect(row?.includes('Retry-After')).toBe(retryAfterSeconds !== undefined);
    }
  });

  test('name every metric, and no others', async () => {
    const metrics = createMetrics({ version: '1', processMetrics: false });
    metrics.watchBufferedBytes(() => 0);
    metrics.watchPendingPasswords(() => 0);
    metrics.watchStoredBodies(() => 0);
    metrics.proxyBytes('a', { bytesSent: 0, bytesReceived: 0 });
    const { text } = await metrics.exposition();
    const all = `${text}\n${await renderProviderMetrics()}`;
    const names = new Set([...all.matchAll(/^# TYPE (\S+) /gm)].map((match) => match[1] ?? ''));
    expect(firstCells('docs/metrics.md').sort()).toEqual([...names].sort());
    for (const outcome of [...DEDUP_OUTCOMES, ...ORDER_OUTCOMES, ...ATTEMPT_OUTCOMES, ...EVENT_REJECTIONS])
      expect(read('docs/metrics.md')).toContain(`\`${outcome}\``);
  });

  test('name every metric of the injector, and no others', async () => {
    const metrics = createInjectorMetrics({ version: '1', processMetrics: false, admissions: ADMISSIONS });
    metrics.watchReady(() => true);
    const { text } = await metrics.exposition();
    const names = [...text.matchAll(/^# TYPE (\S+) /gm)].map((match) => match[1] ?? '');
    expect(firstCells('docs/injector.md').sort()).toEqual(names.sort());
    for (const label of [...CERTIFICATE_STEPS, ...EVENT_OUTCOMES, ...LOOKUP_OUTCOMES])
      expect(read('docs/injector.md')).toContain(`\`${label}\``);
    const [, config = ''] = /```yaml\n(.*?)```/s.exec(read('docs/injector.md')) ?? [];
    expect(parseInjectorConfig('injector.yaml', config).problems).toEqual([]);
  });

  test('name every endpoint of the admin port and its authorized callers, and no others', () => {
    const endpoints = createEndpoints({ clock: systemClock, services: { store: {}, routeParts: {} } } as AdminParts);
    const names = endpoints.map(
      ({ method, path }) => `${method} ${path.replace('/captures/*', '/captures/{requestId}').replace('*', '{route}')}`,
    );
    expect(firstCells('docs/admin.md')).toEqual(names);
    for (const [i, name] of names.entries()) {
      const row = read('docs/admin.md')
        .split('\n')
        .find((line) => line.startsWith(`| \`${name}\` |`));
      const { isOpen = false } = endpoints[i] ?? {};
      const who = isOpen === 'loopback' ? 'callers in the pod (loopback)' : isOpen ? 'everyone' : 'authorized callers';
      expect(row, name).toContain(`| ${who} |`);
    }
    for (const reason of ADMIN_DENIALS) expect(read('docs/metrics.md')).toContain(`\`${reason}\``);
    for (const was of FORGOTTEN_STATES) expect(read('docs/admin.md')).toContain(`\`${was}\``);
  });

  test('name every handshake, and no others; a preset of that name has it', () => {
    const rows = read('docs/handshakes.md').match(/^\| `.*?` \|/gm) ?? [];
    const named = rows.flatMap((row) => [...row.matchAll(/`([^`]+)`/g)].map(([, name]) => name));
    expect(named.sort()).toEqual([...HANDSHAKE_NAMES].sort());
    const names: ReadonlySet<string> = new Set(HANDSHAKE_NAMES);
    for (const { name, handshake } of PRESETS) if (names.has(name)) expect([name, handshake]).toEqual([name, name]);
  });

  test('name every cause of a rejected signature as in the analysis, and no others', () => {
    const rows = read('docs/explain.md').matchAll(/^\| `([^`]+)` \| [^|]+ \| ([^|]+) \|$/gm);
    expect([...rows].map(([, ...cells]) => cells)).toEqual(Object.entries(FIXES));
    expect(firstCells('docs/explain.md')).toEqual(Object.keys(FIXES));
  });

  test('name every finding and state of the doctor, and no others', () => {
    const rows = read('docs/doctor.md').matchAll(/^\| `([^`]+)` \| (error|warning|note) \| .+ \|$/gm);
    const states = firstCells('docs/doctor.md').filter((cell) => (STATES as readonly string[]).includes(cell));
    expect([...rows].map(([, ...cells]) => cells)).toEqual(Object.entries(FINDINGS));
    expect(states).toEqual([...STATES]);
  });

  test('show an example of fixtures that the gate of the README passes', async () => {
    const page = read('docs/testing.md');
    const [, fixtures = ''] = /```yaml\n(.*?)```/s.exec(page) ?? [];
    const [, config = ''] = /```yaml gate\.yaml\n(.*?)```/s.exec(read('README.md')) ?? [];
    const folder = makeFolder();
    writeFileSync(join(folder, 'gate.yaml'), config);
    writeFileSync(join(folder, 'fixtures.yaml'), fixtures);
    const { io, stdout } = recordIo();
    expect(await testConfigs([join(folder, 'fixtures.yaml')], { format: 'text' }, io), stdout()).toBe(0);
  });

  test('name for networks without internet access each host that a preset fetches from, and that of the runbooks', () => {
    const page = read('docs/how-to/air-gapped.md');
    const hosts = PRESETS.flatMap(({ jwksUrl, certificate }) => [
      ...(jwksUrl === undefined ? [] : [new URL(jwksUrl).host]),
      ...(certificate?.hosts ?? []),
    ]);
    const [, table = ''] = /<!-- hosts:.*?-->(.*?)<!-- \/hosts/s.exec(page) ?? [];
    const named = [...table.matchAll(/`([^`]*\.[^`]*)`/g)].map(([, host = '']) => host);
    expect(named.filter((host) => !host.startsWith('sns.'))).toEqual(hosts);
    expect(named).toContain(toSnsHost('<region>'));
    const [, runbooks = ''] = /^ +runbookUrl: (\S+)$/m.exec(read('chart/sidegate/values.yaml')) ?? [];
    expect(page).toContain(`the runbooks below \`${runbooks}\``);
  });

  test('know how senders interpret responses for senders with a preset only', () => {
    const presets = PRESETS.map(({ name }) => name);
    expect(Object.keys(SENDERS).filter((name) => !presets.includes(name))).toEqual([]);
  });

  test('have no empty cell in the page of presets, and the number of signatures that a header may have', () => {
    expect(read('docs/presets.md')).not.toMatch(/\| *\| /);
    expect(read('docs/presets.md')).toContain(`may have up to ${MAX_SIGNATURE_ENTRIES} entries`);
  });

  test('have a page for each sender with a preset, in plain English and with links to pages that exist', () => {
    for (const [name, page] of SENDER_PAGES) {
      expect(page, name).not.toMatch(/undefined|\| *\| |\]\(\.\./);
      // The headings are names of products.
      const prose = extractMarkdown(page).filter(({ kind }) => kind !== 'heading');
      expect(
        prose.flatMap((passage) => findAll(passage)),
        name,
      ).toEqual([]);
      for (const [, target = ''] of page.matchAll(/\]\(((?!http)[^)#]+)/g))
        expect(existsSync(join(ROOT, target)), target).toBe(true);
    }
    const names = SENDER_PAGES.map(([name]) => name);
    expect(Object.keys(SENDER_NOTES).filter((name) => !names.includes(name))).toEqual([]);
  });

  test('show a config for each sender, and for each recipe, that the gate accepts', () => {
    for (const [name, page] of [['docs/source-coverage.md', read('docs/source-coverage.md')] as const, ...SENDER_PAGES]) {
      const configs = [...page.matchAll(/```yaml\n(.*?)```/gs)].map(([, text = '']) => text);
      expect(configs.length, name).toBeGreaterThan(0);
      for (const text of configs) {
        const { problems } = parseConfig('gate.yaml', text, systemClock);
        expect(
          problems.filter(({ severity }) => severity === 'error'),
          `${name}\n${text}`,
        ).toEqual([]);
      }
    }
  });

  test('list every source of other gateways once, with its status here', () => {
    for (const key of ['hookdeck', 'svix'] as const) {
      const types = SOURCES.flatMap((source) => source[key] ?? []);
      expect(types.length).toBe(new Set(types).size);
      expect(types.length).toBeGreaterThanOrEqual({ hookdeck: 140, svix: 37 }[key]);
    }
    for (const source of SOURCES) {
      const status = toStatus(source);
      if (status.kind === 'preset') expect(PRESETS.map(({ name }) => name)).toContain(status.name);
      if (status.kind === 'recipe') expect(Object.keys(RECIPES), source.title).toContain(status.name);
    }
    const used = new Set(SOURCES.flatMap(({ recipe }) => recipe ?? []));
    expect(Object.keys(RECIPES).filter((name) => !used.has(name))).toEqual([]);
  });

  test('show pods that the injector accepts, and examples of its annotations', async () => {
    const page = read('docs/injection.md');
    expect(Object.keys(SETTINGS).length).toBeLessThanOrEqual(16);
    for (const [, text = ''] of page.matchAll(/```yaml\n(.*?)```/gs)) {
      const stdin = Readable.from([text]) as NodeJS.ReadableStream;
      const io = { stdin, env: {}, stdout: () => undefined, stderr: () => undefined };
      const options = { filename: ['-'], namespace: 'default', kubeVersion: '1.34', format: 'yaml' };
      expect(await injectFiles(options, io), text).toBe(0);
    }
    for (const { name, form, example } of Object.values(SETTINGS)) expect(hasForm(form, example), name).toBe(true);
  });

  test('describe each check of the probe completely', () => {
    const rows = read('docs/probe.md').match(/^\| `.*$/gm) ?? [];
    for (const row of rows) expect(row.split('|').filter((cell) => cell.trim() !== '')).toHaveLength(5);
  });

  test.each([
    'README.md',
    'docs/forward-auth.md',
    'docs/admin.md',
    'docs/console-api.md',
    'docs/handshakes.md',
    'docs/route-precedence.md',
    'docs/presets.md',
    'docs/explain.md',
    'docs/tracing.md',
  ])('show configs in %s that the gate accepts', (page) => {
    const blocks = [...read(page).matchAll(/```yaml\n(.*?)```/gs)].map(([, text = '']) => text);
    const configs = blocks.filter((text) =>
      /^(?:listen|store|routes|proxy|authz|identity|admin|journal|explain|tracing):/m.test(text),
    );
    expect(configs.length).toBeGreaterThan(0);
    for (const text of configs) {
      const overrides = text.includes('../secrets/') ? IN_A_POD : {};
      const { problems } = parseConfig('gate.yaml', text.includes('routes:') ? text : text + ANY_ROUTE, systemClock, {
        overrides,
      });
      expect(problems.filter(({ severity }) => severity === 'error')).toEqual([]);
    }
  });

  test('name every command with its required options', () => {
    const { commands } = createProgram({ ...SILENT, stdin: Readable.from([]) as NodeJS.ReadableStream }, () => undefined);
    const rows = firstCells('docs/cli.md');
    for (const command of commands) {
      const row = rows.find((cell) => cell.split(' ')[1] === command.name());
      expect(row, command.name()).toBeDefined();
      for (const { mandatory, long, short } of command.options)
        if (mandatory) expect(row?.split(' '), command.name()).toContain(row?.includes(` ${short} `) ? short : long);
    }
  });

  test('have an index that links to every page', () => {
    const index = read('docs/README.md');
    const pages = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.md'));
    // Runbooks are listed by the page on monitoring, and decisions by their folder.
    for (const page of pages.filter((name) => name !== 'README.md' && !/^(?:runbooks|adr)\//.test(name)))
      expect(index, page).toContain(`](${page})`);
    expect(read('docs/monitoring.md')).toContain('(injector.md#metrics)');
  });

  test('keep the README below 250 lines', () => {
    expect(read('README.md').split('\n').length).toBeLessThan(250);
  });

  test('name only files and npm scripts that exist', () => {
    const scripts = Object.keys((JSON.parse(read('package.json')) as { scripts: object }).scripts);
    const pages = [
      'README.md',
      'CONTRIBUTING.md',
      'CHANGELOG.md',
      'SECURITY.md',
      'ARCHITECTURE.md',
      ...['GOVERNANCE.md', 'MAINTAINERS.md', 'CODE_OF_CONDUCT.md', 'RELEASE.md', '.github/PULL_REQUEST_TEMPLATE.md'],
      'chart/sidegate/README.md',
      'chart/sidegate-lib/README.md',
      ...globSync('examples/**/README.md', { cwd: ROOT }),
      ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.md'))
        .map((name) => join('docs', name)),
    ];
    for (const page of pages) {
      const text = read(page);
      for (const [, script = ''] of text.matchAll(/npm run ([a-z0-9:-]+)/g)) expect(scripts, page).toContain(script);
      for (const [, suite] of text.matchAll(/npm test -- ([a-z][a-z0-9]*)/g)) expect(listSuites(), page).toContain(suite);
      for (const [, name] of text.matchAll(/npm run bench -- ([a-z][a-z-]*)/g))
        expect(read('bench/main.ts'), page).toMatch(new RegExp(`^  '?${name}'?: `, 'm'));
      for (const [, target = ''] of text.matchAll(/\]\(((?!http)[^)#]+)/g))
        expect(() => readFileSync(join(ROOT, page, '..', target)), `${page}: ${target}`).not.toThrow();
    }
  });
});

describe('the threat model', () => {
  const named = [...read('docs/threat-model.md').matchAll(/`(test\/[\w./-]+\.test\.ts)`/g)].map(([, file = '']) => file);

  test('names tests that exist', () => {
    expect(named.filter((file) => !existsSync(join(ROOT, file)))).toEqual([]);
  });

  test('names every test of an attack', () => {
    const attacks = readdirSync(join(ROOT, 'test/attack')).filter((file) => file.endsWith('.test.ts'));
    expect(attacks.map((file) => `test/attack/${file}`).filter((file) => !named.includes(file))).toEqual([]);
  });

  test('has a test for every promise', () => {
    const promises = read('docs/threat-model.md')
      .split('\n')
      .filter((line) => /^\| [A-Z].*\.\s\|/.test(line));
    expect(promises.length).toBeGreaterThan(15);
    for (const promise of promises) expect(promise).toMatch(/`test\/[\w./-]+\.test\.ts` \|$/);
  });
});

test('the architecture page describes every area', () => {
  const page = read('ARCHITECTURE.md');
  for (const folder of readdirSync(join(ROOT, 'src'))) {
    expect(page).toContain(`| \`${folder}/\``);
    const inner = readdirSync(join(ROOT, 'src', folder), { withFileTypes: true }).filter((entry) => entry.isDirectory());
    for (const { name } of inner) expect(page).toContain(`\`${name}/\``);
  }
});

test('the source tree follows its layout', () => {
  expect(lintLayers(join(ROOT, 'src'))).toEqual([]);
});
