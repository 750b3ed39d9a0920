import { existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { injectFiles } from '../../src/cli/inject.ts';
import { isOfSender } from '../../src/cli/sender-page.ts';
import { PRESETS } from '../../src/verify/presets/catalogue.ts';
import { runCommand } from '../support/cli.ts';
import { useFolder } from '../support/fixtures.ts';
import { LAUNCHER } from '../support/process.ts';
import { run } from '../support/run.ts';
import { runOnTerminal } from '../support/terminal.ts';

const folder = useFolder();
let count = 0;

function newFolder(files: Readonly<Record<string, string>> = {}): string {
  const path = join(folder, String(count++));
  mkdirSync(path);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text);
  return path;
}

const read = (path: string, file: string): string => readFileSync(join(path, file), 'utf8');
const hasSystemd = (process.env['PATH'] ?? '').split(':').some((path) => existsSync(join(path, 'systemd-analyze')));
const toTexts = (value: unknown): string[] => (typeof value === 'string' ? [value] : Object.values(value ?? {}).flatMap(toTexts));
const SENDERS = PRESETS.filter(isOfSender).map(({ name }) => name);

describe('sidegate init', () => {
  test.each(SENDERS)('writes a config for %s that lacks nothing but the values of the user', async (sender) => {
    const path = newFolder();
    const { code, stdout } = await runCommand(['init', path, '--sender', sender]);
    const errors = stdout.split('\n').filter((line) => line.includes(': error '));
    // Nobody can invent the public key of a sender.
    const isKeyMissing = stdout.includes(`\nnext: ${join(path, 'secrets', sender, 'public-key')} must hold `);
    expect(errors.filter((line) => !line.endsWith('public-key does not exist'))).toEqual([]);
    expect({ code, errors: errors.length }).toEqual(isKeyMissing ? { code: 1, errors: 1 } : { code: 0, errors: 0 });
  });

  test.each(SENDERS)('names each value of the config for %s that the user has to replace', async (sender) => {
    const path = newFolder();
    const { stdout } = await runCommand(['init', path, '--sender', sender]);
    const [, named = ''] = /^next: replace (.*) in \S+$/m.exec(stdout) ?? [];
    const { scheme, keys, ...settings } = parse(read(path, 'gate.yaml')).routes[0].webhook;
    const preset = PRESETS.find(({ name }) => name === scheme);
    const given = new Set([...toTexts(preset?.jwt?.claims), 'off', 'eventgrid.azure.net']);
    const placeholders = toTexts(settings).filter((text) => !given.has(text) && !text.startsWith('secrets/'));
    expect(named.split(' and ').filter(Boolean).sort()).toEqual([...new Set(placeholders)].sort());
  });

  test('writes secrets that only their owner can read, and each one is new', async () => {
    const [a, b] = [newFolder(), newFolder()];
    for (const path of [a, b]) await runCommand(['init', path, '--sender', 'stripe', '--redis', 'redis://:pw@127.0.0.1:6379']);
    const secret = read(a, 'secrets/stripe/secret');
    expect(secret).toMatch(/^whsec_[0-9a-f]{64}\n$/);
    expect(read(b, 'secrets/stripe/secret')).not.toBe(secret);
    for (const file of ['secrets/stripe/secret', 'secrets/redis/url']) expect(statSync(join(a, file)).mode & 0o777).toBe(0o600);
    expect(read(a, 'gate.yaml')).not.toMatch(/whsec_[0-9a-f]|:pw@/);
    await run('git', ['init', '--quiet', a]);
    const { stdout } = await run('git', ['-C', a, 'status', '--porcelain', '--untracked-files=all']);
    expect(stdout).toBe('?? gate.yaml\n');
  });

  test.each([
    ['package.json', '{"dependencies":{"express":"^5"}}', 'http://127.0.0.1:3000', '127.0.0.1:8080'],
    ['manage.py', '"""Django\'s command-line utility."""', 'http://127.0.0.1:8000', '127.0.0.1:8080'],
    ['pyproject.toml', 'dependencies = ["fastapi[standard]"]', 'http://127.0.0.1:8000', '127.0.0.1:8080'],
    ['Gemfile', 'gem "rails", "~> 8.0"', 'http://127.0.0.1:3000', '127.0.0.1:8080'],
    [
      'build.gradle.kts',
      'id("org.springframework.boot") version "4.0.0" // spring-boot',
      'http://127.0.0.1:8080',
      '127.0.0.1:8081',
    ],
    ['notes.txt', 'express', 'http://127.0.0.1:3000', '127.0.0.1:8080'],
  ])('takes the port of the app from %s', async (file, text, upstream, address) => {
    const path = newFolder({ [file]: text });
    expect((await runCommand(['init', path, '--sender', 'github'])).code).toBe(0);
    expect(parse(read(path, 'gate.yaml'))).toMatchObject({ listen: { address }, routes: [{ upstream }] });
  });

  test('asks on a terminal for what no option has, and checks what it wrote', () => {
    const path = newFolder({ 'package.json': '{"dependencies":{"express":"^5"}}' });
    const command = [process.execPath, LAUNCHER, 'init', path];
    const { stdout, status } = runOnTerminal(command, { answers: 'strype\r|stripe, github\r|\r|\r|compos\r|compose\r' });
    expect(stdout).toContain('unknown scheme. Did you mean stripe?');
    expect(stdout).toContain('--deploy is one of none, compose, systemd, kubernetes, not compos');
    expect(stdout).toContain('which looks like Express [http://127.0.0.1:3000]:');
    expect(stdout).toContain(`${join(path, 'sidegate/gate.yaml')}: `);
    expect({ status, names: parse(read(path, 'sidegate/gate.yaml')).routes.map(({ name }: { name: string }) => name) }).toEqual({
      status: 0,
      names: ['stripe', 'github'],
    });
    expect(existsSync(join(path, 'compose.yaml'))).toBe(true);
  });

  test('says how to start what it wrote', async () => {
    const path = newFolder();
    const { stdout } = await runCommand(['init', path, '--sender', 'github']);
    expect(stdout.split('\n').at(-2)).toBe(`next: start the app, then sidegate run --config ${join(path, 'gate.yaml')}`);
  });

  test('ends if the terminal is closed, and writes nothing', () => {
    const path = newFolder();
    const { stdout, status } = runOnTerminal([process.execPath, LAUNCHER, 'init', path], { answers: 'github\r|\u0004' });
    expect(stdout).toContain('sidegate: canceled');
    expect(status).toBe(2);
    expect(existsSync(join(path, 'gate.yaml'))).toBe(false);
  });

  test.each([
    [['--sender', 'strype'], 'strype'],
    [['--sender', 'bearer'], 'bearer is not a sender'],
    [['--app', '127.0.0.1:3000'], '--app is not a URL'],
    [['--app', 'ftp://127.0.0.1'], '--app is not a URL'],
    [['--app', 'http://127.0.0.1:3000/app'], '--app is not a URL'],
    [['--app', 'http://ada:pw@127.0.0.1:3000'], '--app is not a URL'],
    [['--redis', '127.0.0.1:6379'], '--redis is not a URL'],
    [['--deploy', 'helm'], '--deploy is one of none, compose, systemd, kubernetes, not helm'],
  ])('rejects %j, and writes nothing', async (options, message) => {
    const path = newFolder();
    const { code, stderr } = await runCommand(['init', path, ...options]);
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining(message) });
    expect(stderr).not.toContain('pw');
    expect(existsSync(join(path, 'gate.yaml'))).toBe(false);
  });

  test.each(['file', 'link'])('overwrites nothing: a %s', async (kind) => {
    const path = newFolder(kind === 'file' ? { 'compose.yaml': 'mine\n' } : {});
    if (kind === 'link') symlinkSync('/nowhere/compose.yaml', join(path, 'compose.yaml'));
    const { code, stderr } = await runCommand(['init', path, '--sender', 'github', '--deploy', 'compose']);
    expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringContaining('compose.yaml exists') });
    if (kind === 'file') expect(read(path, 'compose.yaml')).toBe('mine\n');
    expect(existsSync(join(path, 'sidegate'))).toBe(false);
  });
});

describe('what sidegate init writes to start it', () => {
  test.runIf(hasSystemd)('is a unit that systemd accepts', async () => {
    const path = newFolder();
    await runCommand(['init', path, '--sender', 'github', '--deploy', 'systemd']);
    const file = join(path, 'sidegate.service');
    writeFileSync(file, read(path, 'sidegate.service').replace(/^ExecStart=\S+/m, `ExecStart=${process.execPath}`));
    const { code, stderr } = await run('systemd-analyze', ['verify', '--man=no', file]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  });

  test('is a Compose file with the port of the config, and with files that exist', async () => {
    const path = newFolder();
    await runCommand(['init', path, '--sender', 'github', '--app', 'http://127.0.0.1:8080', '--deploy', 'compose']);
    const { app, sidegate } = parse(read(path, 'compose.yaml')).services;
    expect(parse(read(path, 'sidegate/gate.yaml')).listen.address).toBe(':8081');
    expect(app.ports).toEqual(['8081:8081']);
    expect(sidegate.network_mode).toBe('service:app');
    for (const volume of sidegate.volumes) expect(existsSync(join(path, volume.split(':')[0])), volume).toBe(true);
    expect(read(path, 'sidegate/secrets/.gitignore')).toBe('*\n');
  });

  test('is a Kustomization whose files exist, with annotations by which pods get the sidecar', async () => {
    const path = newFolder();
    await runCommand([
      'init',
      path,
      '--sender',
      'github',
      '--sender',
      'stripe',
      '--redis',
      'redis://redis:6379',
      '--deploy',
      'kubernetes',
    ]);
    const text = read(path, 'kustomization.yaml');
    const { configMapGenerator, secretGenerator } = parse(text);
    const secrets = secretGenerator.map(({ name }: { name: string }) => name);
    expect(secrets).toEqual(['sidegate-github', 'sidegate-stripe', 'sidegate-redis']);
    for (const { files } of [...configMapGenerator, ...secretGenerator])
      for (const file of files) expect(existsSync(join(path, file)), file).toBe(true);
    expect(text).toMatch(/^# 1\. Install the chart/);
    expect(text).toContain('# 3. Set targetPort: sidegate (8480 before Kubernetes 1.33) in the Service of the app');
    const [, labels = ''] = /^# {3}labels: (.*)$/m.exec(text) ?? [];
    const [, annotations = ''] = /^# {3}annotations: (.*)$/m.exec(text) ?? [];
    const metadata = { name: 'app', labels: parse(labels), annotations: parse(annotations) };
    const pod = {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata,
      spec: { containers: [{ name: 'app', image: 'app', ports: [{ containerPort: 3000 }] }] },
    };
    writeFileSync(join(path, 'pod.json'), JSON.stringify(pod));
    const options = { filename: [join(path, 'pod.json')], namespace: 'default', kubeVersion: '1.34', format: 'json' };
    let written = '';
    const write = (more: string): void => {
      written += more;
    };
    expect(await injectFiles(options, { stdin: process.stdin, env: {}, stdout: write, stderr: write }), written).toBe(0);
    for (const name of secrets) expect(written).toContain(`"secretName": "${name}"`);
  });
});
