/** Sees to it that the league's servers are on the machine: installs what it can, and tells what is missing. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { CADDY, readVersion, type SystemName } from './systems.ts';

/** Debian and Ubuntu packages; apache2-bin is httpd without a service. */
const PACKAGES: Readonly<Partial<Record<SystemName, string>>> = {
  nginx: 'nginx-light',
  HAProxy: 'haproxy',
  httpd: 'apache2-bin',
};
const CADDY_VERSION = '2.11.9';
const CADDY_MODULE = 'github.com/caddyserver/caddy/v2/cmd/caddy';
const BUILD_WITHIN_MS = 600_000;
/** Asked by Debian's packages before they start a service; 101 is no. */
const SERVICE_POLICY = '/usr/sbin/policy-rc.d';

/** Installs what is missing where that is possible; lines about who cannot take part. Throws where a Debian package is missing. */
export function prepare(): string[] {
  const missing = Object.entries(PACKAGES).flatMap(([name, pack]) =>
    readVersion(name as SystemName) === undefined ? [pack] : [],
  );
  if (missing.length > 0 && !install(missing)) throw new Error(`the league needs apt-get install ${missing.join(' ')}`);
  return buildCaddy();
}

function install(packages: readonly string[]): boolean {
  if (process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) return false;
  console.log(`installing for the league: ${packages.join(' ')}`);
  // A package's own service must not start: the league runs servers of its own.
  const isOurs = !existsSync(SERVICE_POLICY);
  if (isOurs) writeFileSync(SERVICE_POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const apt = (...args: string[]): boolean =>
    spawnSync('apt-get', ['-qq', ...args], { env, stdio: ['ignore', 'ignore', 'inherit'] }).status === 0;
  try {
    return apt('update') && apt('install', '-y', '--no-install-recommends', ...packages);
  } finally {
    if (isOurs) rmSync(SERVICE_POLICY);
  }
}

function buildCaddy(): string[] {
  if (readVersion('Caddy') === CADDY_VERSION) return [];
  if (spawnSync('go', ['version']).status !== 0) return ['Caddy is left out: Go is not installed to build it'];
  console.log(`building Caddy ${CADDY_VERSION}`);
  mkdirSync(dirname(CADDY), { recursive: true });
  // No newer Go is fetched for it: what is here builds it, or it is left out.
  const env = { ...process.env, GOBIN: dirname(CADDY), GOTOOLCHAIN: 'local' };
  const { status } = spawnSync('go', ['install', `${CADDY_MODULE}@v${CADDY_VERSION}`], {
    env,
    stdio: 'ignore',
    timeout: BUILD_WITHIN_MS,
  });
  return status === 0 ? [] : [`Caddy is left out: version ${CADDY_VERSION} could not be built`];
}
