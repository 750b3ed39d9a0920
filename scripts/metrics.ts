/**
 * `npm run metrics`: the size and shape of the code in figures, so that a change can say what it made smaller. `--delivery` prints the files on
 * the way of an accepted delivery instead.
 */
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Session } from 'node:inspector/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { parseSync, Visitor } from 'oxc-parser';
import { prepare } from '../src/app/check.ts';
import { Gate } from '../src/app/gate.ts';
import { systemClock } from '../src/core/clock.ts';
import { Secret } from '../src/core/secret.ts';
import { createLogger } from '../src/telemetry/log/logger.ts';
import { standardWebhooks } from '../src/verify/presets/standard-webhooks.ts';
import { compileScheme } from '../src/verify/schemes/compile.ts';

const ROOT = resolve(import.meta.dirname, '..');
const SMALL_LINES = 60;
const BAG = /(?:Parts|Options|Context|Events|Settings)$/;

/** A module of src, with what others import of it. */
interface Module {
  readonly lines: number;
  readonly types: ReadonlySet<string>;
  readonly exports: ReadonlySet<string>;
  /** By file: the imported names; `*` is all of them. */
  readonly imports: ReadonlyMap<string, ReadonlySet<string>>;
}

/** TypeScript files that git has, or would have, below `folders`. */
function listFiles(...folders: readonly string[]): string[] {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...folders];
  const files = execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim().split('\n');
  return files.filter((file) => /\.tsx?$/.test(file) && existsSync(join(ROOT, file)));
}

function readSource(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

function countLines(...folders: readonly string[]): number {
  return listFiles(...folders).reduce((sum, file) => sum + readSource(file).split('\n').length - 1, 0);
}

function readModule(file: string): Module {
  const source = readSource(file);
  const { program, module } = parseSync(file, source);
  const types = new Set<string>();
  const imports = new Map<string, Set<string>>();
  const addImport = (specifier: string, names: readonly string[]): void => {
    if (!specifier.startsWith('.')) return;
    const target = join(dirname(file), specifier);
    imports.set(target, new Set([...(imports.get(target) ?? []), ...names]));
  };
  for (const { moduleRequest, entries } of module.staticImports)
    addImport(
      moduleRequest.value,
      entries.map(({ importName }) => importName.name ?? (importName.kind === 'Default' ? 'default' : '*')),
    );
  const exports = new Set<string>();
  for (const { entries } of module.staticExports)
    for (const { moduleRequest, exportName, importName } of entries) {
      exports.add(exportName.name ?? 'default');
      if (moduleRequest) addImport(moduleRequest.value, [importName.name ?? '*']);
    }
  new Visitor({
    TSInterfaceDeclaration: ({ id }) => void types.add(id.name),
    TSTypeAliasDeclaration: ({ id }) => void types.add(id.name),
    ClassDeclaration: ({ id }) => void (id && types.add(id.name)),
    // Loaded when it is needed: all of it.
    ImportExpression: ({ source }) => {
      if (source.type === 'Literal' && typeof source.value === 'string') addImport(source.value, ['*']);
    },
  }).visit(program);
  return { lines: source.split('\n').length - 1, types, exports, imports };
}

/** The figures that follow from the text of src. */
function measureSource(): Readonly<Record<string, number>> {
  const modules = new Map(listFiles('src').map((file) => [file, readModule(file)]));
  const all = [...modules];
  const lines = all.map(([, { lines }]) => lines).sort((a, b) => a - b);
  const toImporters = (file: string, name?: string): number =>
    all.filter(([, { imports }]) => {
      const names = imports.get(file);
      return names !== undefined && (name === undefined || names.has(name) || names.has('*'));
    }).length;
  const exported = all.flatMap(([file, { exports }]) => [...exports].map((name) => [file, name] as const));
  const types = all.flatMap(([, { types }]) => [...types]);
  const counts = new Map<string, number>();
  for (const name of types) counts.set(name, (counts.get(name) ?? 0) + 1);
  return {
    'src/: lines': lines.reduce((sum, each) => sum + each, 0),
    'src/: files': all.length,
    'src/: median lines of a file': lines[Math.floor(lines.length / 2)] ?? 0,
    [`src/: files under ${SMALL_LINES} lines with one importer`]: all.filter(
      ([file, { lines }]) => lines < SMALL_LINES && toImporters(file) === 1,
    ).length,
    'src/: exports': exported.length,
    'src/: exports used by one file': exported.filter(([file, name]) => toImporters(file, name) === 1).length,
    'src/: types': types.length,
    'src/: type names declared in two files or more': [...counts.values()].filter((count) => count > 1).length,
    'src/: types named …Parts, …Options, …Context, …Events or …Settings': types.filter((name) => BAG.test(name)).length,
  };
}

/**
 * The files of src with a function that ran while the gate handled one accepted delivery: from the connection to the response and what is
 * settled after it. A first delivery before it runs what happens once only, and the gate is in this process, without workers.
 */
async function findDeliveryFiles(): Promise<string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-metrics-'));
  const app = createServer((_request, response) => response.end('handled'));
  await once(app.listen(0, '127.0.0.1'), 'listening');
  const file = join(folder, 'gate.yaml');
  const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
  writeFileSync(
    file,
    `listen: { address: 127.0.0.1:0 }
admin: { address: 127.0.0.1:0 }
routes:
  - name: hooks
    match: { path: /hooks }
    upstream: http://127.0.0.1:${(app.address() as AddressInfo).port}
    webhook: { scheme: standard-webhooks, keys: [{ name: current, secret: { env: METRICS_SECRET } }] }
`,
  );
  process.env['METRICS_SECRET'] = secret;
  const ready = await prepare(file, systemClock);
  if (ready.loaded === undefined) throw new Error(ready.problems.map(({ message }) => message).join('\n'));
  const logger = createLogger({ level: 'info', version: 'metrics', destination: { write: () => undefined } });
  const gate = new Gate(ready, { file, clock: systemClock, logger, version: 'metrics' });
  const { data } = await gate.start();
  // Signed before, because the signer is in src too.
  const sign = (id: string): RequestInit => {
    const [body, timestamp] = [Buffer.from(JSON.stringify({ id })), systemClock.now()];
    const fields = compileScheme(standardWebhooks).sign({ id, timestamp, body }, new Secret(Buffer.from(secret)), undefined);
    const own: [string, string][] = fields.map(([name, value]) => [name, value]);
    return { body, headers: [['Content-Type', 'application/json'], ['Connection', 'close'], ...own] };
  };
  const [first, second] = [sign('evt_1'), sign('evt_2')];
  const deliver = async (delivery: RequestInit): Promise<void> => {
    const response = await fetch(`http://127.0.0.1:${data?.port}/hooks`, { method: 'POST', ...delivery });
    if (response.status !== 200 || (await response.text()) !== 'handled') throw new Error(`the delivery got ${response.status}`);
  };
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await deliver(first);
  await session.post('Profiler.takePreciseCoverage');
  await deliver(second);
  const { result } = await session.post('Profiler.takePreciseCoverage');
  session.disconnect();
  await gate.stop();
  app.close();
  rmSync(folder, { recursive: true });
  const prefix = new URL('../', import.meta.url).href;
  const ran = result.filter(({ functions }) => functions.some(({ ranges }) => (ranges[0]?.count ?? 0) > 0));
  return ran
    .map(({ url }) => url.replace(prefix, ''))
    .filter((file) => file.startsWith('src/'))
    .sort();
}

const deliveryFiles = await findDeliveryFiles();
const figures = {
  ...measureSource(),
  'src/: files on the way of an accepted delivery': deliveryFiles.length,
  'scripts/: lines': countLines('scripts'),
  'scripts/: files': listFiles('scripts').length,
  'bench/ and league/: lines': countLines('bench', 'league'),
  'chart/: lines': countLines('chart'),
  'test/: lines': countLines('test'),
  'npm scripts': Object.keys((JSON.parse(readSource('package.json')) as { scripts: object }).scripts).length,
};
if (process.argv.includes('--delivery')) console.log(deliveryFiles.join('\n'));
else for (const [name, value] of Object.entries(figures)) console.log(`${value.toLocaleString('en').padStart(8)}  ${name}`);
