import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { buildDockerfileImage, canBuildDockerfileImage, extractImage, toImageCommand } from '../prepare/dockerfile-image.ts';
import { IMAGE_NODE_VERSION } from '../prepare/image-node.ts';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';
import { useApp, useFolder } from '../support/fixtures.ts';
import { readListeningPort } from '../support/listening-port.ts';
import { type Image, readImage } from '../support/node/oci.ts';
import { run } from '../support/run.ts';

const MAX_BYTES = 180_000_000;

describe.skipIf(!canBuildDockerfileImage())('the image of the Dockerfile', () => {
  const app = useApp();
  const root = useFolder();
  let image: Image;
  let env: Record<string, string>;

  const runInside = async (...command: readonly string[]): Promise<string> => {
    const { code, stdout, stderr } = await run(...toImageCommand(root, command));
    expect(code, stderr).toBe(0);
    return stdout.trim();
  };

  beforeAll(async () => {
    image = readImage(await buildDockerfileImage(), 'sidegate');
    extractImage(image, root);
    env = Object.fromEntries((image.config.Env ?? []).map((each) => each.split(/=(.*)/).slice(0, 2)));
  });

  test('has at most 180 MB', () => {
    const bytes = image.layers.reduce((sum, layer) => sum + layer.bytes.length, 0);
    console.log(`the image has ${(bytes / 1e6).toFixed(1)} MB`);
    expect(bytes).toBeLessThan(MAX_BYTES);
  });

  test('runs as user 65532, and has no file with more rights than its user', () => {
    expect(image.config.User).toBe('65532:65532');
    expect(readFileSync(join(root, 'etc', 'passwd'), 'utf8')).toContain('nonroot:x:65532:65532:');
    expect(execFileSync('find', [root, '-perm', '/6000'], { encoding: 'utf8' })).toBe('');
  });

  test('contains only two programs: Node, and the shell of the preStop hook', () => {
    const found = execFileSync('find', [root, '-type', 'f', '-perm', '/111', '-path', '*bin/*'], { encoding: 'utf8' });
    expect(
      found
        .trim()
        .split('\n')
        .map((path) => path.replace(root, ''))
        .sort(),
    ).toEqual(['/usr/bin/bash', '/usr/local/bin/node']);
    expect(existsSync(join(root, 'usr/local/lib/node_modules'))).toBe(false);
  });

  test("names Debian's packages for scanners, with their licenses", () => {
    const folder = join(root, 'var', 'lib', 'dpkg', 'status.d');
    const packages = execFileSync('ls', [folder], { encoding: 'utf8' }).trim().split('\n');
    expect(packages).toEqual(expect.arrayContaining(['bash', 'ca-certificates', 'libatomic1', 'libc6', 'libstdc++6']));
    for (const name of packages) {
      expect(readFileSync(join(folder, name), 'utf8')).toMatch(/^Version: \S+$/m);
      expect(existsSync(join(root, 'usr/share/doc', name, 'copyright')), name).toBe(true);
    }
    expect(existsSync(join(root, 'usr/share/doc/node-LICENSE'))).toBe(true);
  });

  test('has the Node of the tests, with certificates, time zones and the native bcrypt', async () => {
    const script = `
      const { compareSync } = require('/opt/sidegate/node_modules/@node-rs/bcrypt');
      const time = new Date(0).toLocaleTimeString('en-GB', { timeZone: 'Asia/Tokyo' });
      console.log(process.version, time, compareSync('secret', '$2y$04$vSESmDjB/hUw55J9zqv/NeWt03SrtDFMf1XvzgY.uSoDrtsPJT57O'));`;
    expect(await runInside('/usr/local/bin/node', '--eval', script)).toBe(`v${IMAGE_NODE_VERSION} 09:00:00 false`);
    expect(readFileSync(join(root, 'etc/ssl/certs/ca-certificates.crt'), 'utf8')).toContain('BEGIN CERTIFICATE');
    expect(await runInside('/bin/bash', '-c', 'echo $BASH')).toBe('/bin/bash');
  });

  test('starts the gate with its entrypoint and its environment, on a read-only root', async () => {
    const folder = join(root, 'etc', 'sidegate');
    mkdirSync(folder);
    const users = execFileSync('htpasswd', ['-nbB', '-C', '5', 'Aladdin', 'open sesame'], { encoding: 'utf8' });
    writeFileSync(join(folder, 'users'), users.trim());
    writeFileSync(join(folder, 'secret'), SECRET);
    const upstream = `http://127.0.0.1:${app.port}`;
    const config = {
      listen: { address: '127.0.0.1:0' },
      admin: { address: '127.0.0.1:0' },
      shutdown: { grace: '0ms' },
      routes: [
        {
          name: 'hooks',
          match: { path: '/hooks/billing' },
          upstream,
          webhook: { keys: [{ name: 'k', secret: { file: 'secret' } }] },
        },
        {
          name: 'admin',
          match: { path: '/admin' },
          upstream,
          basic: { realm: 'a', users: { file: 'users' }, requireTls: false },
        },
      ],
    };
    writeFileSync(join(folder, 'gate.yaml'), stringify(config));
    const { Entrypoint = [], Cmd = [] } = image.config;
    const child = spawn(...toImageCommand(root, [...Entrypoint, ...Cmd]), {
      env: { ...env, PATH: `${env['PATH']}:/usr/sbin:/bin` },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      const port = await readListeningPort(child.stdout);
      expect((await send(port, makeDelivery())).text).toBe('handled');
      const headers = { Authorization: 'Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==' };
      expect((await send(port, { method: 'GET', path: '/admin', headers })).text).toBe('handled');
    } finally {
      const ended = new Promise((done) => child.once('exit', done));
      child.kill('SIGTERM');
      expect(await ended).toBe(0);
    }
  });
});
