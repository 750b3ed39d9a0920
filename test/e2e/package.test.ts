import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { parseSync } from 'oxc-parser';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkInstalled, installNpm, packNpm } from '../../scripts/release-dry.ts';
import { findNode, IMAGE_NODE_VERSION, PACKAGE_NODE_VERSIONS } from '../prepare/image-node.ts';
import { SECRET } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { readListeningPort } from '../support/listening-port.ts';

const ROOT = resolve(import.meta.dirname, '..', '..');
const NODES = [PACKAGE_NODE_VERSIONS.oldest, process.versions.node, IMAGE_NODE_VERSION];
const folder = useFolder();
const launcher = join(folder, 'lib', 'node_modules', '@sidegate', 'sidegate', 'bin', 'sidegate.cjs');
const app = useApp();

beforeAll(async () => {
  for (const script of ['build.ts', 'sbom.ts'])
    execFileSync(process.execPath, [join(ROOT, 'scripts', script)], { cwd: ROOT, stdio: 'ignore' });
  installNpm(packNpm('.', folder, ['--ignore-scripts']), folder);
  writeFileSync(join(folder, 'secret'), SECRET);
  writeFileSync(
    join(folder, 'gate.yaml'),
    `listen: { address: "127.0.0.1:0" }\nadmin: { address: "127.0.0.1:0" }\nshutdown: { grace: 0ms }\nroutes:\n  - name: a\n    match: { path: /hooks/billing }\n    upstream: http://127.0.0.1:${app.port}\n    webhook: { keys: [{ name: k, secret: { file: secret } }] }\n  - name: b\n    match: { pathPrefix: /admin }\n    upstream: http://127.0.0.1:${app.port}\n    basic: { realm: admin, users: { file: users }, requireTls: false }\n`,
  );
  const hash = execFileSync('htpasswd', ['-nbB', '-C', '10', 'Aladdin', 'open sesame'], { encoding: 'utf8' });
  writeFileSync(join(folder, 'users'), hash.trim());
}, 120_000);

describe('the npm package', () => {
  test('contains the bundles, the schema, the bill of materials, the licenses and the readme, and nothing else', () => {
    const installed = dirname(dirname(launcher));
    const files = readdirSync(installed, { recursive: true, withFileTypes: true });
    const paths = files
      .filter((file) => file.isFile())
      .map((file) => join(file.parentPath, file.name).slice(installed.length + 1))
      // The names of parts change with their content.
      .filter((path) => !/^dist\/(?:verify-.+\.js|part-.+\.cjs)$/.test(path));
    expect(paths.filter((path) => !path.startsWith('node_modules')).toSorted()).toEqual([
      'LICENSE',
      'README.md',
      'bin/sidegate.cjs',
      'dist/THIRD-PARTY-LICENSES.txt',
      'dist/config.schema.json',
      'dist/console-page.css',
      'dist/console-page.js',
      'dist/console-render.cjs',
      'dist/password-worker.cjs',
      'dist/queue-worker.cjs',
      'dist/sidegate-bodies.cjs',
      'dist/sidegate-console.cjs',
      'dist/sidegate-explain.cjs',
      'dist/sidegate-jwt.cjs',
      'dist/sidegate-postgres.cjs',
      'dist/sidegate-provider.cjs',
      'dist/sidegate-redis.cjs',
      'dist/sidegate-tools.cjs',
      'dist/sidegate.1',
      'dist/sidegate.cdx.json',
      'dist/sidegate.cjs',
      'dist/verify.d.ts',
      'dist/verify.js',
      'package.json',
    ]);
    expect(JSON.parse(readFileSync(join(installed, 'dist', 'config.schema.json'), 'utf8'))).toMatchObject({ type: 'object' });
  });

  test('has the schema of the config once, and bcrypt only in the thread that needs it', () => {
    const dist = join(dirname(dirname(launcher)), 'dist');
    const having = (text: string): readonly string[] =>
      readdirSync(dist).filter((file) => file.endsWith('.cjs') && readFileSync(join(dist, file), 'utf8').includes(text));
    expect(having('Where deliveries are sent. https, without user and password')).toHaveLength(1);
    expect(having('=require("@node-rs/bcrypt")')).toEqual(['password-worker.cjs']);
  });

  test('installs a man page', () => {
    expect(readFileSync(join(folder, 'share', 'man', 'man1', 'sidegate.1'), 'utf8')).toContain('.SS sidegate run ');
  });

  test('verifies as a library', () => {
    const code = `
      import { createVerifier } from '@sidegate/sidegate/verify';
      const verifier = createVerifier({ scheme: 'slack', secrets: ['8f742231b10e8888abcd99yyyzzz85a5'] });
      console.log((await verifier.verify({ headers: { 'Content-Type': 'application/json' }, body: '{}' })).reason);`;
    const cwd = join(folder, 'lib');
    writeFileSync(join(cwd, 'app.mjs'), code);
    for (const version of NODES) {
      const node = version === process.versions.node ? process.execPath : findNode(version);
      if (node !== undefined) expect(execFileSync(node, ['app.mjs'], { cwd, encoding: 'utf8' })).toBe('missing_signature\n');
    }
  });

  test('has a scoped name and can be published', () => {
    const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Record<string, unknown>;
    expect(manifest).toMatchObject({ name: '@sidegate/sidegate', engines: { node: '>=22.15' } });
    expect(manifest).not.toHaveProperty('private');
    expect(Object.keys(manifest['dependencies'] as object)).toEqual(['@node-rs/bcrypt']);
  });

  test('passes the check of a release, which rejects another version and a missing license', () => {
    const installed = dirname(dirname(launcher));
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect(checkInstalled(installed, version)).toMatch(/^installs, checks a config, \d+ packages in its bill of materials$/);
    expect(() => checkInstalled(installed, '9.9.9')).toThrow(`sidegate --version printed ${version}, expected 9.9.9`);
    const licenses = join(installed, 'dist', 'THIRD-PARTY-LICENSES.txt');
    renameSync(licenses, `${licenses}.away`);
    try {
      expect(() => checkInstalled(installed, version)).toThrow('THIRD-PARTY-LICENSES.txt is missing');
    } finally {
      renameSync(`${licenses}.away`, licenses);
    }
  });

  for (const version of NODES) {
    const node = version === process.versions.node ? process.execPath : findNode(version);
    test.skipIf(node === undefined)(`checks, runs, sends and hashes passwords on Node ${version}`, async () => {
      const run = (args: readonly string[], input = '') =>
        spawnSync(node as string, [launcher, ...args], { cwd: folder, encoding: 'utf8', input });
      expect(run(['check', '--config', 'gate.yaml'])).toMatchObject({ status: 0 });
      expect(run(['hash-password', 'joe'], 'open sesame').stdout).toMatch(/^joe:\$2y\$12\$.{53}\n$/);
      const gate = spawn(node as string, [launcher, 'run', '--config', 'gate.yaml'], {
        cwd: folder,
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      try {
        const admin = readListeningPort(gate.stdout, 'adminPort');
        const url = `http://127.0.0.1:${await readListeningPort(gate.stdout)}`;
        const sent = await runAside(node as string, ['send', '--secret-file', 'secret', `${url}/hooks/billing`]);
        expect(sent).toBe(0);
        const login = (password: string) =>
          fetch(`${url}/admin`, { headers: { authorization: `Basic ${Buffer.from(`Aladdin:${password}`).toString('base64')}` } });
        expect((await login('open sesame')).status).toBe(200);
        expect((await login('another')).status).toBe(401);
        // Its code is a separate bundle.
        const console_ = await fetch(`http://127.0.0.1:${await admin}/api/v1/deliveries`);
        expect(((await console_.json()) as { data: object[] }).data).toHaveLength(3);
      } finally {
        gate.kill('SIGTERM');
      }
      expect(await new Promise((done) => gate.once('exit', done))).toBe(0);
    });
  }

  const tooOld = findNode(PACKAGE_NODE_VERSIONS.tooOld);
  test.skipIf(tooOld === undefined)('reports in one sentence that Node is too old', () => {
    const { status, stdout, stderr } = spawnSync(tooOld as string, [launcher, 'check'], { encoding: 'utf8' });
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toBe(
      `sidegate needs Node 22.15 or newer, and this is Node ${PACKAGE_NODE_VERSIONS.tooOld}: install one from https://nodejs.org, or run the container image.\n`,
    );
  });

  test('has a launcher that every Node can parse', () => {
    const types = new Set<string>();
    JSON.stringify(parseSync('sidegate.cjs', readFileSync(launcher, 'utf8')).program, (key, value: unknown) => {
      if (key === 'type' || key === 'kind') types.add(String(value));
      return value;
    });
    const newer = [
      'ArrowFunctionExpression',
      'TemplateLiteral',
      'ImportExpression',
      'SpreadElement',
      'let',
      'const',
      'ObjectPattern',
    ];
    expect(newer.filter((type) => types.has(type))).toEqual([]);
    expect(types).toContain('VariableDeclaration');
  });

  describe('without the native bcrypt', () => {
    const package_ = () => join(folder, 'lib', 'node_modules', '@node-rs');
    beforeAll(() => renameSync(package_(), join(folder, 'away')));
    afterAll(() => renameSync(join(folder, 'away'), package_()));

    test.each(['check', 'run'])('rejects a config with passwords at `%s`', (command) => {
      const args = [launcher, command, '--config', 'gate.yaml'];
      const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: folder, encoding: 'utf8' });
      expect(status).toBe(1);
      expect(stdout + stderr).toContain(
        'gate.yaml:12:12: error routes.1.basic: passwords cannot be checked: the native bcrypt is missing or does not load',
      );
      expect(stdout + stderr).toContain('hint: install @node-rs/bcrypt with its optional dependencies');
    });

    test('accepts a config without passwords', () => {
      const text = readFileSync(join(folder, 'gate.yaml'), 'utf8').replace(/ {2}- name: b[\s\S]*/, '');
      mkdirSync(join(folder, 'plain'), { recursive: true });
      writeFileSync(join(folder, 'plain', 'gate.yaml'), text.replace('file: secret', 'file: ../secret'));
      const args = [launcher, 'check', '--config', join(folder, 'plain', 'gate.yaml')];
      expect(spawnSync(process.execPath, args)).toMatchObject({ status: 0 });
    });

    test('reports what to install when a password should be hashed', () => {
      const args = [launcher, 'hash-password', 'joe'];
      const { status, stderr } = spawnSync(process.execPath, args, { input: 'open sesame', encoding: 'utf8' });
      expect(status).not.toBe(0);
      expect(stderr).toMatch(/^sidegate: cannot load the native bcrypt: .+ \(install @node-rs\/bcrypt with .+\)\n$/);
    });
  });
});

/** Runs a command while the app of this process answers. */
function runAside(node: string, args: readonly string[]): Promise<number | null> {
  const child = spawn(node, [launcher, ...args], { cwd: folder, stdio: ['pipe', 'ignore', 'inherit'] });
  child.stdin.end('{"type":"package.installed"}');
  return new Promise((done) => child.once('exit', done));
}
