/** The environment that all compared proxies share: a temporary folder, a secret, Redis and the app, all on loopback. */
import { writeFileSync } from 'node:fs';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { findFreePort, type Launch, OTHER_CORE, withProcessGroup } from './children.ts';
import { nginxModulesFolder } from './setup.ts';
import { makeSecret } from './sign.ts';

/** The environment of one benchmark. */
export interface BenchEnvironment {
  readonly folder: string;
  readonly secret: string;
  readonly redisPort: number;
  readonly appPort: number;
  /** The IDs of all requests that the app handled, one per line. */
  readonly appLog: string;
  readonly close: () => Promise<void>;
}

/** Starts Redis and the app. */
export function openEnvironment(): Promise<BenchEnvironment> {
  return withProcessGroup(async (group) => {
    const { folder } = group;
    const redisPort = await findFreePort();
    const redisArgs = ['--bind', '127.0.0.1', '--port', String(redisPort), '--dir', folder, '--save', '', '--appendonly', 'no'];
    await group.start({ core: OTHER_CORE, command: 'redis-server', args: redisArgs }, redisPort);
    const appPort = await findFreePort();
    const appLog = join(folder, 'app.log');
    await group.start(toNginx(folder, 'app', OTHER_CORE, writeAppConfig(folder, appPort, appLog)), appPort);
    return { folder, secret: makeSecret(), redisPort, appPort, appLog, close: () => group.close() };
  });
}

/** The command that starts nginx on one core. */
export function toNginx(folder: string, name: string, core: number, config: string): Launch {
  return { core, command: 'nginx', args: ['-e', join(folder, `${name}-errors.log`), '-c', config] };
}

/** The first lines of each nginx config of the benchmark: nginx writes only into `folder`. */
export function toNginxHead(folder: string, name: string, modules: readonly string[] = []): string {
  const modulesFolder = modules.length === 0 ? '' : nginxModulesFolder();
  return [
    'daemon off;',
    'worker_processes 1;',
    // If root starts it, nginx would switch to a user who may not read the folder.
    userInfo().uid === 0 ? 'user root;' : '',
    `pid ${join(folder, `${name}.pid`)};`,
    `error_log ${join(folder, `${name}-errors.log`)} warn;`,
    ...modules.map((module) => `load_module ${join(modulesFolder, module)};`),
    'events { worker_connections 4096; }',
  ].join('\n');
}

/** The folders for temporary files of nginx. */
export function toNginxSpools(folder: string, name: string): string {
  const kinds = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return kinds.map((kind) => `${kind}_temp_path ${join(folder, `${name}-${kind}`)};`).join('\n  ');
}

/** An app with minimal cost: it reads the body, responds, and logs the ID. */
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
