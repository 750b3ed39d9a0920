/** The servers of the league: where each is found, how it is configured and started. */
import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort } from '../bench/children.ts';
import { type ServerProcess, startServer } from './processes.ts';
import { type Recorder, startRecorder } from './recorder.ts';
import type { LeagueUser } from './requests.ts';

/** A server's short name. */
export type SystemName = 'sidegate' | 'nginx' | 'HAProxy' | 'httpd' | 'Caddy';

/** A server before its own app. */
export interface System extends ServerProcess {
  readonly name: SystemName;
  readonly port: number;
  readonly app: Recorder;
}

interface Plan {
  /** Beside this file. */
  readonly template: string;
  readonly command: string;
  readonly args: (configFile: string) => readonly string[];
  /** How it is asked for its version, and where that stands in what it says. */
  readonly version: readonly [args: readonly string[], pattern: RegExp];
}

const ROOT = join(import.meta.dirname, '..');
const LAUNCHER = join(ROOT, 'bin', 'sidegate.cjs');
/** Debian puts servers where only root looks for commands. */
const PATH = `${process.env['PATH'] ?? ''}:/usr/sbin`;
const HTTPD_MODULES = '/usr/lib/apache2/modules';

/** Where Caddy is built: Debian's own is years old. */
export const CADDY = join(ROOT, '.cache', 'league', 'caddy');

/** In the order of the report. */
export const SYSTEMS: Readonly<Record<SystemName, Plan>> = {
  sidegate: {
    template: 'sidegate.yaml',
    command: process.execPath,
    args: (file) => [LAUNCHER, 'run', '--config', file],
    version: [[LAUNCHER, '--version'], /(\S+)/],
  },
  nginx: {
    template: 'nginx.conf',
    command: 'nginx',
    args: (file) => ['-e', 'stderr', '-c', file],
    version: [['-v'], /nginx\/(\S+)/],
  },
  HAProxy: {
    template: 'haproxy.cfg',
    command: 'haproxy',
    args: (file) => ['-db', '-f', file],
    version: [['-v'], /version (\S+?)-/],
  },
  httpd: {
    template: 'httpd.conf',
    command: 'apache2',
    args: (file) => ['-D', 'FOREGROUND', '-f', file],
    version: [['-v'], /Apache\/(\S+)/],
  },
  Caddy: {
    template: 'Caddyfile',
    command: CADDY,
    args: (file) => ['run', '--adapter', 'caddyfile', '--config', file],
    version: [['build-info'], /caddy\/v2\s+v(\S+)/],
  },
};

/** All names, sidegate's first. */
export const SYSTEM_NAMES = Object.keys(SYSTEMS) as readonly SystemName[];

/** The version the server says it has; undefined where it is not installed. */
export function readVersion(name: SystemName): string | undefined {
  const { command, version } = SYSTEMS[name];
  const { stdout, stderr } = spawnSync(command, version[0], { encoding: 'utf8', env: { ...process.env, PATH } });
  return version[1].exec(`${stdout ?? ''}${stderr ?? ''}`)?.[1];
}

/** Starts the server on a free port, with an app of its own behind it. */
export async function startSystem(name: SystemName, users: readonly LeagueUser[]): Promise<System> {
  const { template, command, args } = SYSTEMS[name];
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-league-'));
  // httpd and nginx read the users as a user who is not root.
  chmodSync(folder, 0o755);
  const app = await startRecorder();
  const port = await findFreePort();
  const usersFile = join(folder, 'users');
  writeFileSync(usersFile, users.map(({ user, hash }) => `${user}:${hash}\n`).join(''));
  const values: Readonly<Record<string, string>> = {
    PORT: String(port),
    APP_PORT: String(app.port),
    FOLDER: folder,
    USERS: usersFile,
    MODULES: HTTPD_MODULES,
    HAPROXY_USERS: users.map(({ user, hash }) => `  user ${user} password ${hash}`).join('\n'),
    CADDY_USERS: users.map(({ user, hash }) => `\t\t${user} ${hash}`).join('\n'),
  };
  const configFile = join(folder, template);
  const text = readFileSync(join(import.meta.dirname, 'peers', template), 'utf8');
  writeFileSync(configFile, fillIn(text, values));
  const cleanUp = (): void => {
    app.close();
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const server = await startServer(command, args(configFile), { PATH, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }, port);
    const stop = async (): Promise<void> => {
      await server.stop();
      cleanUp();
    };
    return { name, port, app, isAlive: server.isAlive, stop };
  } catch (thrown) {
    cleanUp();
    throw thrown;
  }
}

/** Puts values where the template has their names between at signs. */
function fillIn(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/@([A-Z_]+)@/g, (found, name: string) => values[name] ?? found);
}
