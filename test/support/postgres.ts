/** Real PostgreSQL servers on loopback, each in a folder of its own, and PgBouncer in front of one. */
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findFreePort, untilOpen } from './free-port.ts';
import { until } from './gate.ts';

/** A server that runs, or ran. */
export interface PostgresServer {
  readonly port: number;
  readonly folder: string;
  /** The URL of a role in a database, over TCP; by default the superuser and the database `postgres`. */
  readonly url: (options?: { readonly role?: string; readonly database?: string; readonly search?: string }) => string;
  /** Runs SQL as the superuser by psql, which stops at the first error, and gives its output: a row a line, columns separated by `|`. */
  readonly sql: (text: string, database?: string) => string;
  readonly signal: (signal: NodeJS.Signals) => void;
  /** `pg_ctl stop -m immediate`: ends all sessions at once, and the next start recovers from the log. */
  readonly kill: () => Promise<void>;
  /** Ends it at once, if it runs, and starts it again on the same port; as a standby, it is read-only until `promote`. */
  readonly restart: (as?: 'primary' | 'standby') => Promise<void>;
  readonly promote: () => void;
  readonly stop: () => Promise<void>;
}

/** How it is started. */
export interface PostgresOptions {
  /** Lines of postgresql.conf. */
  readonly config?: readonly string[];
  /** PEM files: connections by TCP can then use TLS. */
  readonly tls?: { readonly cert: string; readonly key: string };
  /** Copies this server and follows it. */
  readonly standbyOf?: PostgresServer;
  /** Where it creates its folder; by default among the temporary files. */
  readonly parent?: string;
}

/** The password of every role that `url` names. */
export const POSTGRES_PASSWORD = 'pass word/1%';

const DEBIAN = '/usr/lib/postgresql';
/** Tests end the server at once, but never the machine, so nothing needs to reach the disk. */
const SETTINGS = ['fsync = off', 'full_page_writes = off', 'max_connections = 60', 'shared_buffers = 16MB', "timezone = 'UTC'"];

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGQUIT');
});

/** Starts a server and waits until it takes queries. */
export async function startPostgres({ config = [], tls, standbyOf, parent }: PostgresOptions = {}): Promise<PostgresServer> {
  const port = await findFreePort();
  const folder = makeFolder('sidegate-postgres-', parent);
  const data = join(folder, 'data');
  if (standbyOf === undefined) createCluster(folder, data);
  else
    run('pg_basebackup', [
      '-D',
      data,
      '-R',
      '-c',
      'fast',
      '-h',
      standbyOf.folder,
      '-p',
      String(standbyOf.port),
      '-U',
      'postgres',
    ]);
  const listen = ["listen_addresses = '127.0.0.1'", `port = ${port}`, `unix_socket_directories = '${folder}'`];
  const lines = [...SETTINGS, ...listen, ...(tls === undefined ? [] : ['ssl = on']), ...config];
  appendFileSync(join(data, 'postgresql.conf'), `${lines.join('\n')}\n`);
  if (tls !== undefined) for (const name of ['cert', 'key'] as const) copyOwned(tls[name], join(data, NAMES[name]));
  let child = await launch();

  async function launch(): Promise<ChildProcess> {
    const started = spawn(findProgram('postgres'), ['-D', data], { stdio: 'ignore', ...owner() });
    running.add(started);
    started.once('exit', () => running.delete(started));
    await until(() => isReady(folder, port));
    return started;
  }
  async function kill(): Promise<void> {
    await end(child, 'SIGQUIT');
  }
  return {
    port,
    folder,
    url: ({ role = 'postgres', database = 'postgres', search = '' } = {}) =>
      `postgres://${role}:${encodeURIComponent(POSTGRES_PASSWORD)}@127.0.0.1:${port}/${database}${search}`,
    sql: (text, database = 'postgres') =>
      execFileSync(findProgram('psql'), toPsql(folder, port, database), { input: text, encoding: 'utf8', stdio: 'pipe' }).trim(),
    signal: (signal) => void child.kill(signal),
    kill,
    restart: async (as = 'primary') => {
      await kill();
      const standby = join(data, 'standby.signal');
      if (as === 'standby') writeFileSync(standby, '');
      else rmSync(standby, { force: true });
      child = await launch();
    },
    promote: () => run('pg_ctl', ['promote', '-w', '-D', data]),
    stop: async () => {
      await kill();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** PgBouncer. */
export interface Pooler {
  /** Like `PostgresServer.url`, through the pooler. */
  readonly url: PostgresServer['url'];
  readonly stop: () => Promise<void>;
}

/** Starts a pooler in transaction mode: each transaction may run on another connection, so that LISTEN and session settings do not last. */
export async function startPooler(server: PostgresServer, roles: readonly string[] = ['postgres']): Promise<Pooler> {
  const port = await findFreePort();
  const folder = makeFolder('sidegate-pgbouncer-');
  const file = join(folder, 'pgbouncer.ini');
  writeFileSync(join(folder, 'users'), roles.map((role) => `"${role}" "${POSTGRES_PASSWORD}"\n`).join(''));
  const lines = ['[databases]', `* = host=127.0.0.1 port=${server.port}`, '[pgbouncer]', 'pool_mode = transaction'];
  const listen = ['listen_addr = 127.0.0.1', `listen_port = ${port}`, 'unix_socket_dir =', 'auth_type = scram-sha-256'];
  writeFileSync(file, [...lines, ...listen, `auth_file = ${join(folder, 'users')}`, 'default_pool_size = 4', ''].join('\n'));
  for (const name of ['users', 'pgbouncer.ini']) own(join(folder, name));
  const child = spawn('/usr/sbin/pgbouncer', [file], { stdio: 'ignore', ...owner() });
  running.add(child);
  child.once('exit', () => running.delete(child));
  await untilOpen(port);
  return {
    url: (options) => server.url(options).replace(`127.0.0.1:${server.port}`, `127.0.0.1:${port}`),
    stop: async () => {
      await end(child, 'SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const NAMES = { cert: 'server.crt', key: 'server.key' };

function createCluster(folder: string, data: string): void {
  const password = join(folder, 'password');
  writeFileSync(password, POSTGRES_PASSWORD);
  own(password);
  const auth = ['--auth-local=trust', '--auth-host=scram-sha-256', `--pwfile=${password}`];
  run('initdb', ['-D', data, '-U', 'postgres', '-E', 'UTF8', '--locale=C', '--no-sync', ...auth]);
}

function toPsql(folder: string, port: number, database: string): string[] {
  return ['-h', folder, '-p', String(port), '-U', 'postgres', '-d', database, '-XqAt', '-v', 'ON_ERROR_STOP=1'];
}

function isReady(folder: string, port: number): Promise<boolean> {
  const args = [...toPsql(folder, port, 'postgres'), '-c', 'SELECT 1'];
  return new Promise((resolve) => void execFile(findProgram('psql'), args, (error) => resolve(error === null)));
}

/** Debian keeps the server's programs of each version in a separate folder, which is not in PATH. */
function findProgram(name: string): string {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN) : [];
  const [newest] = versions.map(Number).sort((a, b) => b - a);
  return newest === undefined ? name : join(DEBIAN, String(newest), 'bin', name);
}

function run(program: string, args: readonly string[]): void {
  execFileSync(findProgram(program), args, { stdio: ['ignore', 'ignore', 'pipe'], ...owner() });
}

/** PostgreSQL and PgBouncer refuse to run as root. */
function owner(): { readonly uid?: number; readonly gid?: number } {
  if (process.getuid?.() !== 0) return {};
  const id = (flag: string): number => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

function own(path: string): void {
  const { uid, gid } = owner();
  if (uid !== undefined && gid !== undefined) chownSync(path, uid, gid);
}

function copyOwned(from: string, to: string): void {
  copyFileSync(from, to);
  chmodSync(to, 0o600);
  own(to);
}

function makeFolder(prefix: string, parent = tmpdir()): string {
  const folder = mkdtempSync(join(parent, prefix));
  own(folder);
  return folder;
}

async function end(child: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill(signal);
  await ended;
}
