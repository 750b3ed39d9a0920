/** Reads the key that forwarded requests are signed with. */
import type { IdentityConfig } from '../config/schema/config.ts';
import { readSecret } from '../config/sources/secrets.ts';
import { type Problem, unwrap, warning } from '../core/problem.ts';
import { type IdentityKey, parseIdentityKey } from '../gateway/upstream/identity-token.ts';

/** The result of reading the key, which is undefined if there was an error. */
export interface IdentityRead {
  readonly key: IdentityKey | undefined;
  readonly problems: readonly Problem[];
}

const PATH = ['identity', 'key', 'secret'];

/** Reads the key; undefined if requests are not signed. */
export async function readIdentity(config: IdentityConfig | undefined): Promise<IdentityRead | undefined> {
  if (config === undefined) return undefined;
  const { algorithm, key } = config;
  const problems: Problem[] = [];
  const read = unwrap(await readSecret(key.secret), PATH, problems);
  const source = { name: key.name, algorithm, encoding: key.secret.encoding };
  const parsed = read && unwrap(parseIdentityKey(source, read.secret), PATH, problems);
  if (parsed !== undefined) for (const message of read?.warnings ?? []) problems.push(warning(PATH, message));
  return { key: parsed, problems };
}

/** The files to watch. */
export function toIdentityFiles(config: IdentityConfig | undefined): string[] {
  return config !== undefined && 'file' in config.key.secret ? [config.key.secret.file] : [];
}
