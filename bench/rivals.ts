/** The rivals: how each is configured and started on the gate's core. */
import type { ChildProcess } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { installImageNode } from '../test/prepare/image-node.ts';
import { type BenchEnvironment, toNginx, toNginxHead, toNginxSpools } from './bench-environment.ts';
import { end, findFreePort, GATE_CORE, type Launch, launch, untilListening } from './children.ts';
import { listFamily } from './machine.ts';

/** A rival's short name. */
export type RivalName = 'nginx-lua' | 'express' | 'sidegate';

/** A running rival. */
export interface Contestant {
  readonly name: RivalName;
  readonly port: number;
  /** The process and its workers. */
  readonly pids: readonly number[];
  /** The log with one line per handled event, which contains its ID: that of the app, or of the app that verifies itself. */
  readonly handledLog: string;
  /** Extracts the ID from a line; undefined for other lines. */
  readonly readId: (line: string) => string | undefined;
  readonly stop: () => Promise<void>;
}

/** In the order of each round; the rivals are first. */
export const RIVALS: readonly RivalName[] = ['nginx-lua', 'express', 'sidegate'];

const BUNDLE = join(import.meta.dirname, '..', 'dist', 'sidegate.cjs');
const EXPRESS_APP = join(import.meta.dirname, 'rivals', 'express-app.ts');
const LUA_FOLDER = join(import.meta.dirname, 'rivals');

/** Starts a rival and waits until it accepts connections. */
export async function startRival(name: RivalName, environment: BenchEnvironment): Promise<Contestant> {
  const port = await findFreePort();
  const child = await LAUNCHERS[name](environment, port);
  await untilListening(child, port);
  const isInApp = name === 'express';
  return {
    name,
    port,
    pids: listFamily(child.pid ?? 0),
    handledLog: isInApp ? join(environment.folder, 'express.log') : environment.appLog,
    readId: isInApp ? readExpressId : (line) => line,
    stop: () => end(child),
  };
}

type Launcher = (environment: BenchEnvironment, port: number) => ChildProcess | Promise<ChildProcess>;

const LAUNCHERS: Readonly<Record<RivalName, Launcher>> = {
  'nginx-lua': launchNginx,
  express: launchExpress,
  sidegate: (environment, port) => launchBundle(environment, port),
};

function launchNginx(environment: BenchEnvironment, port: number): ChildProcess {
  return launch(toNginx(environment.folder, 'nginx', GATE_CORE, writeNginxConfig(environment, port)));
}

function launchExpress(environment: BenchEnvironment, port: number): ChildProcess {
  const args = [EXPRESS_APP, String(port), String(environment.redisPort), join(environment.folder, 'express.log')];
  const env = { NODE_ENV: 'production', BENCH_SECRET: environment.secret };
  return launch({ core: GATE_CORE, command: installImageNode(), args, env });
}

async function launchBundle(environment: BenchEnvironment, port: number, bundle = BUNDLE): Promise<ChildProcess> {
  const config = writeSidegateConfig(environment, port, await findFreePort());
  return launch(toSidegate(config, { BENCH_SECRET: environment.secret }, bundle));
}

/** Starts a build of sidegate from its bundle, on the gate's core. */
export async function startBundle(
  bundle: string,
  environment: BenchEnvironment,
): Promise<Pick<Contestant, 'port' | 'pids' | 'stop'>> {
  const port = await findFreePort();
  const child = await launchBundle(environment, port, bundle);
  await untilListening(child, port);
  return { port, pids: listFamily(child.pid ?? 0), stop: () => end(child) };
}

/** The command that starts a bundle; its log is next to its config. */
export function toSidegate(config: string, env: NodeJS.ProcessEnv, bundle = BUNDLE): Launch {
  const log = config.replace(/\.yaml$/, '.log');
  const args = [bundle, 'run', '--config', config];
  return { core: GATE_CORE, command: installImageNode(), args, env: { NODE_ENV: 'production', ...env }, log };
}

/** As a user would write it; everything else is sidegate's default. */
function writeSidegateConfig(environment: BenchEnvironment, port: number, adminPort: number): string {
  const file = join(environment.folder, `sidegate-${port}.yaml`);
  const config = `listen:
  address: 127.0.0.1:${port}
admin:
  address: 127.0.0.1:${adminPort}
store:
  redis: { url: redis://127.0.0.1:${environment.redisPort} }
shutdown: { grace: 0s }
routes:
  - name: billing
    match: { path: /hooks/billing }
    upstream: http://127.0.0.1:${environment.appPort}
    timeout: 15s
    webhook:
      scheme: standard-webhooks
      keys:
        - { name: current, secret: { env: BENCH_SECRET } }
      tolerance: 5m
      maxBody: 1Mi
      dedup: { retention: 3d, lease: 60s, inProgress: wait, maxWait: 4s, onStoreError: refuse }
`;
  writeFileSync(file, config);
  return file;
}

function writeNginxConfig(environment: BenchEnvironment, port: number): string {
  const { folder, redisPort, appPort, secret } = environment;
  const file = join(folder, 'nginx.conf');
  const config = `${toNginxHead(folder, 'nginx', ['ndk_http_module.so', 'ngx_http_lua_module.so'])}
http {
  ${toNginxSpools(folder, 'nginx')}
  lua_package_path "${LUA_FOLDER}/?.lua;/usr/share/lua/5.1/?.lua;;";
  log_format line escape=json '{"time":"$time_iso8601","requestId":"$request_id","route":"billing","method":"$request_method",'
    '"status":$status,"webhookId":"$http_webhook_id","client":"$remote_addr","duration":$request_time,'
    '"upstream":"$upstream_response_time","bytesIn":"$content_length"}';
  access_log ${join(folder, 'nginx.log')} line buffer=64k flush=1s;
  client_max_body_size 1m;
  client_body_buffer_size 1m;
  keepalive_requests 100000000;
  keepalive_timeout 65s;
  init_by_lua_block { gate = require 'gate'; gate.init(${redisPort}, '${secret}') }
  init_worker_by_lua_block { gate.init_worker() }
  upstream app {
    server 127.0.0.1:${appPort};
    keepalive 256;
    keepalive_requests 100000000;
  }
  server {
    listen 127.0.0.1:${port};
    location = /hooks/billing {
      limit_except POST { deny all; }
      access_by_lua_block { gate.access() }
      log_by_lua_block { gate.log() }
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_ignore_client_abort on;
      proxy_connect_timeout 1s;
      proxy_read_timeout 15s;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header Sidegate-Route billing;
      proxy_set_header Sidegate-Key current;
      proxy_set_header Sidegate-Request-Id $request_id;
      proxy_hide_header webhook-delivery;
      proxy_hide_header X-Slack-No-Retry;
    }
    location / { return 404; }
  }
}
`;
  writeFileSync(file, config);
  return file;
}

function readExpressId(line: string): string | undefined {
  return line.includes('"outcome":"handled"') ? /"webhookId":"([^"]*)"/.exec(line)?.[1] : undefined;
}
