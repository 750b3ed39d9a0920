/** What changes under a gate in production, again and again: config, keys, certificates and the log file. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { GateLives } from '../chaos/gate-lives.ts';
import { type Authority, makeAuthority } from '../support/certificates.ts';
import type { Sections } from '../support/gate.ts';

/** Names of the files of the two keys. One signs while the other one is replaced. */
export const KEYS = ['key-0', 'key-1'] as const;

/** Rotates, and counts how often. */
export class Rotations {
  readonly counts = { config: 0, key: 0, certificate: 0, log: 0 };
  /** Secret that signs now. */
  secret: string;
  readonly #gate: GateLives;
  readonly #folder = mkdtempSync(join(tmpdir(), 'sidegate-soak-'));
  readonly #authority: Authority = makeAuthority(this.#folder, 'ca');
  readonly #toSections: (more: readonly string[]) => Sections;
  readonly #secrets: string[];

  constructor(gate: GateLives, secrets: readonly [string, string], toSections: (more: readonly string[]) => Sections) {
    this.#gate = gate;
    this.#secrets = [...secrets];
    this.secret = secrets[0];
    this.#toSections = toSections;
  }

  /** A new secret in the file of the key that does not sign, which signs from the next rotation on. */
  key(): void {
    const next = ++this.counts.key % 2;
    this.secret = this.#secrets[next] as string;
    const other = 1 - next;
    this.#secrets[other] = `whsec_${randomBytes(24).toString('base64')}`;
    replaceFile(join(this.#gate.folder, KEYS[other] as string), this.#secrets[other] as string);
  }

  certificate(): void {
    writeCertificate(this.#authority, `gate-${this.counts.certificate++ % 2}`, this.#gate.folder);
  }

  /** A config with another number of routes. */
  config(): void {
    const routes = this.counts.config++ % 5;
    this.#gate.configure(this.#toSections(Array.from({ length: routes }, (_, i) => `more-${i}`)));
    this.#gate.signal('SIGHUP');
  }

  /** As logrotate's copytruncate does. */
  log(): void {
    this.counts.log++;
    truncateSync(this.#gate.life.logFile);
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

/** Writes tls.crt and tls.key. */
export function writeCertificate(authority: Authority, name: string, folder: string): void {
  const { cert, key } = authority.issue(name, 'DNS:localhost');
  // The key first: between the two writes, sidegate keeps the certificate that fits.
  replaceFile(join(folder, 'tls.key'), readFileSync(key));
  replaceFile(join(folder, 'tls.crt'), readFileSync(cert));
}

/** At once, as mounted Secrets are: no reader sees a part of it. */
function replaceFile(file: string, content: string | Buffer): void {
  writeFileSync(`${file}.new`, content);
  renameSync(`${file}.new`, file);
}
