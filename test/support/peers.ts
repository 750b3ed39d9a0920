/** Real proxies in front of a gate, started with the configs that the docs show. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { findFreePort } from './free-port.ts';
import { until } from './gate.ts';

/** A proxy that listens. */
export interface Peer {
  readonly port: number;
  stop(): Promise<void>;
}

/** Where a shown config leads instead. */
export interface Leads {
  readonly authzPort: number;
  readonly appPort: number;
}

const PAGE = resolve(import.meta.dirname, '..', '..', 'docs', 'forward-auth.md');
const SHOWN_PORTS = { listen: ':8000', authz: ':9091', app: ':3000' };

/** Whether the command is on this machine. */
export function isInstalled(command: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${command}`]).status === 0;
}

/** The page's first block in `language` that contains `text`. */
export function readShownConfig(language: string, text = ''): string {
  const blocks = readFileSync(PAGE, 'utf8').matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'));
  const block = [...blocks].map(([, each = '']) => each).find((each) => each.includes(text));
  if (block === undefined) throw new Error(`${PAGE} shows no ${text} in ${language}`);
  return block;
}

/** Starts nginx with server blocks as they stand in an `http` section. */
export function startNginx(config: string, leads: Leads): Promise<Peer> {
  return startPeer(config, leads, (folder, shown) => {
    const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((what) => `${what}_temp_path ${folder}/${what};`);
    // One process, as whoever runs the tests: workers of another user could not reach the folder.
    const main = ['daemon off;', 'master_process off;', `pid ${folder}/pid;`, 'error_log stderr crit;', 'events {}'];
    const file = join(folder, 'nginx.conf');
    writeFileSync(file, `${main.join('\n')}\nhttp {\naccess_log off;\n${temporary.join('\n')}\n${shown}\n}\n`);
    return spawn('nginx', ['-p', folder, '-c', file, '-e', 'stderr'], { stdio: ['ignore', 'ignore', 'inherit'] });
  });
}

/** Starts Caddy with sites as they stand in a Caddyfile. */
export function startCaddy(config: string, leads: Leads): Promise<Peer> {
  return startPeer(config, leads, (folder, shown) => {
    const file = join(folder, 'Caddyfile');
    writeFileSync(file, `{\n\tadmin off\n\tauto_https off\n}\n${shown}`);
    const env = { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder, XDG_DATA_HOME: folder };
    return spawn('caddy', ['run', '--config', file, '--adapter', 'caddyfile'], { env, stdio: 'ignore' });
  });
}

/** The program, or undefined if it could not be installed. */
export function findEnvoy(): string | undefined {
  return globSync('.cache/envoy-python/lib/python3*/site-packages/envoy/_bin/envoy')[0];
}

/** Starts Envoy with resources as they stand in the `static_resources` of its config, in one thread: it has one connection to each server. */
export function startEnvoy(program: string, resources: string, leads: Leads): Promise<Peer> {
  return startPeer(resources, leads, (folder, shown) => {
    const file = join(folder, 'envoy.yaml');
    writeFileSync(file, `static_resources:\n${shown.replaceAll(/^/gm, '  ')}`);
    const args = ['-c', file, '--concurrency', '1', '--disable-hot-restart', '--log-level', 'off'];
    return spawn(program, args, { stdio: 'ignore' });
  });
}

async function startPeer(config: string, leads: Leads, run: (folder: string, shown: string) => ChildProcess): Promise<Peer> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-peer-'));
  const port = await findFreePort();
  const shown = config
    .replaceAll(SHOWN_PORTS.listen, `:${port}`)
    .replaceAll(SHOWN_PORTS.authz, `:${leads.authzPort}`)
    .replaceAll(SHOWN_PORTS.app, `:${leads.appPort}`);
  const child = run(folder, shown);
  const exit = new Promise<void>((done) => child.once('exit', () => done()));
  const kill = (): void => void child.kill('SIGKILL');
  process.once('exit', kill);
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`the proxy ended with ${child.exitCode} before it listened`);
    return isListening(port);
  });
  return {
    port,
    stop: async () => {
      process.off('exit', kill);
      kill();
      await exit;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function isListening(port: number): Promise<boolean> {
  return new Promise((done) => {
    const socket = connect(port, '127.0.0.1', () => done(true)).on('error', () => done(false));
    socket.once('connect', () => socket.destroy());
  });
}
