/** `@sidegate/sidegate/verify` as an app installs it: its size, its types, and the examples of its page. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { beforeAll, describe, expect, test } from 'vitest';
import { bundleLibrary, LIBRARY } from '../../scripts/bundle.ts';
import { renderLibraryTypes } from '../../scripts/library-types.ts';
import { useFolder } from '../support/fixtures.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const KIB = 1_024;
const folder = useFolder();
const dist = join(folder, 'node_modules', '@sidegate', 'sidegate', 'dist');
const read = (file: string): string => readFileSync(join(dist, file), 'utf8');
let outputs: Awaited<ReturnType<typeof bundleLibrary>>['outputs'];

beforeAll(async () => {
  mkdirSync(dist, { recursive: true });
  ({ outputs } = await bundleLibrary(dist));
  writeFileSync(join(dist, 'verify.d.ts'), renderLibraryTypes());
  cpSync(join(ROOT, 'package.json'), join(dist, '..', 'package.json'));
});

/** The bytes of files. */
const sizeOf = (names: Iterable<string>): number => [...names].reduce((sum, name) => sum + read(name).length, 0);
const nameOf = (path: string): string => path.split('/').at(-1) ?? '';

/** A file and all that it imports at once. */
function closureOf(name: string, found = new Set<string>()): Set<string> {
  if (found.has(name)) return found;
  found.add(name);
  const [, output] = Object.entries(outputs).find(([path]) => nameOf(path) === name) ?? [];
  for (const { path, kind } of output?.imports ?? []) if (kind === 'import-statement') closureOf(nameOf(path), found);
  return found;
}

describe('the bundle', () => {
  const files = (): string[] => readdirSync(dist).filter((name) => name.endsWith('.js'));

  test('imports nothing of Node', () => {
    for (const file of files()) expect(read(file), file).not.toMatch(/\bfrom\s*["']node:|\bimport\s*\(?\s*["']node:|\brequire\(/);
    const imports = Object.values(outputs).flatMap(({ imports }) => imports.map(({ path }) => nameOf(path)));
    expect(imports.filter((name) => !files().includes(name))).toEqual([]);
  });

  test('has no file above 60 KiB; a verifier loads 110 KiB, and 36 KiB for the presets', () => {
    for (const file of files()) expect(sizeOf([file]), file).toBeLessThanOrEqual(60 * KIB);
    expect(sizeOf(closureOf(LIBRARY))).toBeLessThanOrEqual(110 * KIB);
    expect(sizeOf(files())).toBeLessThanOrEqual(180 * KIB);
    expect(files().reduce((sum, name) => sum + gzipSync(read(name)).length, 0)).toBeLessThanOrEqual(69 * KIB);
  });

  test('has the texts of the docs left out, which no request needs', () => {
    const all = files().map(read).join('\n');
    for (const text of [
      'https://docs.stripe.com',
      'as it was entered',
      'proxyError',
      '10 attempts in 75 hours',
      'Mailgun',
      'v3/certs',
    ])
      expect(all).not.toContain(text);
  });
});

test('has types that fit a worker without the types of Node', () => {
  const lines = [
    "import { createVerifier, memoryStore, type EventStore, type SchemeDescription, type VerifiedDelivery, type VerifyResult, VerifierError } from '@sidegate/sidegate/verify';",
    'const store: EventStore = memoryStore({ maxIds: 10 });',
    "const verifier = createVerifier({ scheme: 'stripe', secrets: ['whsec_x'], tolerance: '5m', dedup: { store, lease: '30s' } });",
    'export async function receive(request: Request): Promise<Response> {',
    '  const result: VerifyResult = await verifier.verify(request);',
    '  if (!result.ok) return result.response;',
    '  const id: string | undefined = result.eventId;',
    '  await result.confirm();',
    '  return verifier.handle({ headers: [["a", "b"]], body: result.body }, () => console.log(id, VerifierError.name));',
    '}',
    'export const forward = (event: VerifiedDelivery) => [new Response(event.body), crypto.subtle.digest("SHA-256", event.body)];',
    'type Node = { method?: string | undefined; url?: string | undefined; headers: Record<string, string | undefined>; body: Uint8Array };',
    'export const parts = ({ method, url, headers, body }: Node) => verifier.verify({ method, url, headers, body });',
    "export const unset = createVerifier({ scheme: 'stripe', secrets: [{ secret: 'whsec_x', name: undefined }], tolerance: undefined });",
    "const signature = { header: 'X-S', encoding: 'hex', forms: [{ prefix: '', algorithm: 'hmac-sha256' }] } as const;",
    "const base = { separator: '', secret: { encoding: 'utf8' }, tolerance: { past: 0, future: 0 }, contentTypes: [] } as const;",
    "const scheme = { ...base, name: 'billing', signature, signed: ['body', { header: 'X-Id' }] } satisfies SchemeDescription;",
    "createVerifier({ scheme, secrets: ['x'] });",
    '// @ts-expect-error A verifier needs secrets.',
    "createVerifier({ scheme: 'stripe' });",
    'export const streamed = (body: AsyncIterable<Uint8Array>) => verifier.verify({ headers: {}, body });',
    '// @ts-expect-error A parsed body is not what was signed.',
    'verifier.verify({ headers: {}, body: { parsed: true } });',
  ];
  writeFileSync(join(folder, 'worker.ts'), lines.join('\n'));
  const compilerOptions = {
    strict: true,
    exactOptionalPropertyTypes: true,
    noEmit: true,
    module: 'nodenext',
    target: 'es2024',
    lib: ['es2024', 'webworker'],
    types: [],
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['worker.ts'] }));
  const run = (): string => execFileSync(join(ROOT, 'node_modules', '.bin', 'tsc'), ['--project', folder], { encoding: 'utf8' });
  expect(run()).toBe('');
});

const page = readFileSync(join(ROOT, 'docs', 'verify.md'), 'utf8');
const examples = [...page.matchAll(/^## (.*)\n[^]*?(?=^## |$(?![^]))/gm)].flatMap(([section, title]) =>
  [...section.matchAll(/^```js\n([^]*?)^```/gm)].map(([, code = '']) => ({ title, code })),
);

test('has examples on its page', () => {
  expect(examples.length).toBeGreaterThanOrEqual(5);
});

/** A request for the function that an example exports. */
const DRIVER = `
const run = async (receive) => {
  const response = await receive(new Request('https://hooks.example.com/', { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/json' } }));
  console.log(response.status, (await response.json()).code);
};
const { default: receive } = await import('./example.mjs');
if (receive !== undefined) await run(receive);
`;

test.each(examples)('runs the example of "$title"', ({ code }) => {
  writeFileSync(join(folder, 'example.mjs'), code);
  writeFileSync(join(folder, 'driver.mjs'), DRIVER);
  const output = execFileSync(process.execPath, [join(folder, 'driver.mjs')], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  expect(output).toMatch(/^(?:401 missing_signature|true evt_1|\[.*\])$/m);
});
