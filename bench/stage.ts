/** What all rivals share for one benchmark: a folder, a secret, Redis and the app, each on loopback and gone afterwards. */
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { end, findFreePort, launch, OTHER_CORE, untilListening } from './children.ts';
import { nginxModulesFolder } from './setup.ts';
import { makeSecret } from './sign.ts';

/** The common ground. */
export interface Stage {
  readonly folder: string;
  readonly secret: string;
  readonly redisPort: number;
  readonly appPort: number;
  /** The ids of all requests that the app answered, one a line. */
  readonly appLog: string;
  readonly close: () => Promise<void>;
}

/** Starts Redis and the app. */
export async function openStage(): Promise<Stage> {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-bench-'));
  const children: ChildProcess[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(children.map(end));
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const redisPort = await findFreePort();
    const redisArgs = ['--bind', '127.0.0.1', '--port', String(redisPort), '--dir', folder, '--save', '', '--appendonly', 'no'];
    children.push(launch({ core: OTHER_CORE, command: 'redis-server', args: redisArgs }));
    const appPort = await findFreePort();
    const appLog = join(folder, 'app.log');
    const appArgs = ['-e', join(folder, 'app-errors.log'), '-c', writeAppConfig(folder, appPort, appLog)];
    children.push(launch({ core: OTHER_CORE, command: 'nginx', args: appArgs }));
    await untilListening(children[0] as ChildProcess, redisPort);
    await untilListening(children[1] as ChildProcess, appPort);
    return { folder, secret: makeSecret(), redisPort, appPort, appLog, close };
  } catch (thrown) {
    await close();
    throw thrown;
  }
}

/** The lines that every nginx of the benchmark begins with: nothing outside `folder` is written. */
export function toNginxHead(folder: string, name: string, modules: readonly string[] = []): string {
  const modulesFolder = modules.length === 0 ? '' : nginxModulesFolder();
  return [
    'daemon off;',
    'worker_processes 1;',
    // Started by root, nginx would change to a user who may not read the folder.
    userInfo().uid === 0 ? 'user root;' : '',
    `pid ${join(folder, `${name}.pid`)};`,
    `error_log ${join(folder, `${name}-errors.log`)} warn;`,
    ...modules.map((module) => `load_module ${join(modulesFolder, module)};`),
    'events { worker_connections 4096; }',
  ].join('\n');
}

/** Where an nginx keeps what it must spool. */
export function toNginxSpools(folder: string, name: string): string {
  const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return kinds.map((kind) => `${kind}_temp_path ${join(folder, `${name}-${kind}`)};`).join('\n  ');
}

/** An app that costs next to nothing: it takes the content in, answers, and writes down the id. */
function writeAppConfig(folder: string, port: number, log: string): string {
  const file = join(folder, 'app.conf');
  const config = `${toNginxHead(folder, 'app')}
http {
  ${toNginxSpools(folder, 'app')}
  log_format ids '$http_webhook_id';
  access_log ${log} ids buffer=64k flush=100ms;
  client_max_body_size 2m;
  keepalive_requests 100000000;
  keepalive_timeout 300s;
  server {
    listen 127.0.0.1:${port};
    location / { default_type application/json; return 200 '{"ok":true}'; }
  }
}
`;
  writeFileSync(file, config);
  return file;
}
