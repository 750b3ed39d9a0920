/** The version: built into the bundle, or from package.json of the sources. */
import { readFileSync } from 'node:fs';

/** Set by the bundler. */
declare const SIDEGATE_VERSION: string | undefined;
declare const SIDEGATE_REVISION: string | undefined;

/** The package's version. */
export function readVersion(): string {
  if (typeof SIDEGATE_VERSION === 'string') return SIDEGATE_VERSION;
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

/** The commit that the bundle was built from. */
export function readRevision(): string {
  return typeof SIDEGATE_REVISION === 'string' ? SIDEGATE_REVISION : 'unknown';
}
