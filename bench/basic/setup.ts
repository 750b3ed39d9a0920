/** Builds Caddy from source if Go is installed, because Debian's version is too old. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { installImageNode } from '../../scripts/image-node.ts';
import { readNginxVersion, readVersion } from '../setup.ts';

const VERSION = '2.11.9';
const CADDY = `github.com/caddyserver/caddy/v2/cmd/caddy@v${VERSION}`;
const FOLDER = join(import.meta.dirname, '..', '..', '.cache', 'bench', `caddy-${VERSION}`);
const BINARY = join(FOLDER, 'caddy');
const BUILD_WITHIN_MS = 900_000;

/** The path of Caddy; undefined if it could not be built. */
export function findCaddy(): string | undefined {
  return existsSync(BINARY) ? BINARY : undefined;
}

/** Builds Caddy once, which takes some minutes. Without Go the benchmark runs without it. */
export function installCaddy(): void {
  if (existsSync(BINARY)) return;
  mkdirSync(FOLDER, { recursive: true });
  console.log('building Caddy, which takes some minutes');
  try {
    const env = { ...process.env, GOBIN: FOLDER };
    execFileSync('go', ['install', CADDY], { env, stdio: 'ignore', timeout: BUILD_WITHIN_MS });
  } catch {
    console.log('Caddy takes no part: `go install` is missing or failed (apt-get install golang-go)');
  }
}

/** Version numbers for the report. */
export function describeBasicTools(): string[] {
  const caddy = findCaddy() === undefined ? 'no Caddy' : `Caddy ${VERSION}`;
  return [`Node ${readVersion(installImageNode())}`, `nginx ${readNginxVersion()}`, caddy];
}
